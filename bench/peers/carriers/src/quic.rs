//! The relays with a QUIC connection between them, which has one stream.

use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, MtuDiscoveryConfig, RecvStream, SendStream, ServerConfig, TokioRuntime,
    TransportConfig,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream as AsyncStream};

use crate::{CHUNK_BYTES, certificate_files};

/// Size of a datagram: what a LAN MTU of 1,300 leaves.
const MTU: u16 = 1_252;
/// Window of the connection and its stream: 250 ms at 1 Gbit/s.
const WINDOW_BYTES: u32 = 32 << 20;

/// Writes a certificate that both relays know.
pub(crate) fn write_certificate(files: &Path) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["far".to_owned()])?;
    let [certificate, key] = certificate_files(files);
    fs::write(certificate, made.cert.der())?;
    fs::write(key, made.key_pair.serialize_der())?;
    Ok(())
}

/// Relays from TCP to a stream; returns the number of bytes.
pub(crate) fn near(files: &Path, to: SocketAddr) -> anyhow::Result<u64> {
    runtime()?.block_on(async {
        let mut roots = quinn::rustls::RootCertStore::empty();
        roots.add(fs::read(&certificate_files(files)[0])?.into())?;
        let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
        config.transport_config(Arc::new(transport()));
        let mut endpoint = endpoint(None)?;
        endpoint.set_default_client_config(config);
        let connection = endpoint.connect(to, "far")?.await?;
        let mut stream = connection.open_uni().await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let (from, _) = listener.accept().await?;
        let bytes = send(from, &mut stream).await?;
        stream.finish()?;
        stream.stopped().await?;
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        Ok(bytes)
    })
}

/// Relays from a stream to TCP; returns the number of bytes.
pub(crate) fn far(files: &Path, to: TcpStream) -> anyhow::Result<u64> {
    runtime()?.block_on(async {
        let [certificate, key] = certificate_files(files);
        let key = quinn::rustls::pki_types::PrivatePkcs8KeyDer::from(fs::read(key)?);
        let mut config = ServerConfig::with_single_cert(vec![fs::read(certificate)?.into()], key.into())?;
        config.transport_config(Arc::new(transport()));
        let endpoint = endpoint(Some(config))?;
        println!("{}", endpoint.local_addr()?);
        let connection = endpoint.accept().await.context("expected a connection")?.await?;
        let mut stream = connection.accept_uni().await?;
        to.set_nonblocking(true)?;
        let bytes = receive(&mut stream, AsyncStream::from_std(to)?).await?;
        drop(stream);
        connection.closed().await;
        Ok(bytes)
    })
}

async fn send(mut from: AsyncStream, to: &mut SendStream) -> anyhow::Result<u64> {
    let (mut bytes, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return Ok(bytes);
        }
        to.write_all(&chunk[..length]).await?;
        bytes += length as u64;
    }
}

async fn receive(from: &mut RecvStream, mut to: AsyncStream) -> anyhow::Result<u64> {
    let mut bytes = 0;
    while let Some(chunk) = from.read_chunk(CHUNK_BYTES, true).await? {
        to.write_all(&chunk.bytes).await?;
        bytes += chunk.bytes.len() as u64;
    }
    to.shutdown().await?;
    Ok(bytes)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn endpoint(config: Option<ServerConfig>) -> anyhow::Result<Endpoint> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    Ok(Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(TokioRuntime))?)
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(MTU)
        .mtu_discovery_config(None::<MtuDiscoveryConfig>)
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into());
    transport
}
