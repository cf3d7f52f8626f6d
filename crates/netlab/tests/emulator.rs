//! The emulated link under the traffic of real kernels.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use netlab::{Direction, EmulatorConfig, LinkConfig, LossModel, TwoSites, TwoSitesConfig, privilege};

fn build(hosts: u8, link: &EmulatorConfig) -> TwoSites {
    TwoSites::build(&TwoSitesConfig { hosts, ..TwoSitesConfig::default() }, link).unwrap()
}

fn millis(milliseconds: u64) -> LinkConfig {
    LinkConfig { delay_us: milliseconds * 1_000, ..LinkConfig::default() }
}

#[test]
fn every_host_reaches_every_host_of_the_other_site() {
    if !privilege::available_or_skip("every_host_reaches_every_host_of_the_other_site") {
        return;
    }
    let sites = build(3, &EmulatorConfig::symmetric(millis(1)));
    for near in 0..3 {
        for far in 0..3 {
            let pairs = [
                (sites.a.host_v4(near), sites.b.host_v4(far)),
                (sites.a.host_v6(near), sites.b.host_v6(far)),
            ];
            for (from, to) in pairs {
                let sender = sites.a.hosts[near].run(|| UdpSocket::bind((from, 0))).unwrap();
                let receiver = sites.b.hosts[far].run(|| UdpSocket::bind((to, 0))).unwrap();
                let mut buffer = [0; 64];
                sender.send_to(b"question", receiver.local_addr().unwrap()).unwrap();
                let (length, asker) = receiver.recv_from(&mut buffer).unwrap();
                assert_eq!((&buffer[..length], asker), (&b"question"[..], sender.local_addr().unwrap()));
                receiver.send_to(b"answer", asker).unwrap();
                let length = sender.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], b"answer");
            }
        }
    }
}
