//! The endpoints of a service of Kubernetes, by the watch interface of its API.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use super::failure::Failure;
use super::http::{Endpoint, Request, Response};
use super::link::Link;
use super::watcher::{Found, Service};

/// Name of the port of nodes in a service that has several.
const PORT_NAME: &str = "undrop";
/// HTTP status, and code of an error in a stream, for changes that the server has forgotten.
const GONE: u16 = 410;

/// News of a service: its slices of endpoints, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SliceNews {
    /// All slices.
    All(Vec<(String, Vec<SocketAddr>)>),
    /// A slice was made or has changed.
    Set(String, Vec<SocketAddr>),
    /// A slice was deleted.
    Gone(String),
}

/// A service whose pods are nodes.
#[derive(Clone, Debug)]
pub(super) struct Kubernetes {
    /// Path of the slices, up to the parameters.
    path: String,
}

impl Kubernetes {
    pub(super) fn new(namespace: &str, service: &str) -> Self {
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
        );
        Self { path }
    }
}

impl Service for Kubernetes {
    type News = SliceNews;

    const NAME: &'static str = "Kubernetes";

    fn list(&mut self, endpoint: &Endpoint, link: &Link) -> Result<Found<SliceNews>, Failure> {
        let answer: Value = serde_json::from_slice(&endpoint.ask_whole(Request::get(&self.path))?)?;
        let position = answer["metadata"]["resourceVersion"].as_str();
        let position =
            position.ok_or_else(|| Failure::answer("expected the version of the list, saw none"))?;
        let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let all = items.iter().filter_map(|item| slice(item, link)).collect();
        Ok(Found { all: SliceNews::All(all), position: position.to_owned() })
    }

    fn watch(&mut self, endpoint: &Endpoint, position: &str) -> Result<Response, Failure> {
        // A position is opaque text; nothing in it may end the parameter.
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !position.bytes().all(is_safe) {
            return Err(Failure::answer(format!(
                "expected a version of letters and digits, saw {position:.40?}"
            )));
        }
        let path = format!("{}&watch=true&allowWatchBookmarks=true&resourceVersion={position}", self.path);
        match endpoint.ask(Request::get(&path)) {
            Err(Failure::Status { status: GONE, .. }) => Err(Failure::Compacted),
            result => result,
        }
    }

    fn read(&mut self, line: &[u8], _: &str, link: &Link) -> Result<Vec<SliceNews>, Failure> {
        let event: Value = serde_json::from_slice(line)?;
        let object = &event["object"];
        let news = match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                slice(object, link).map(|(name, found)| SliceNews::Set(name, found))
            }
            Some("DELETED") => {
                object["metadata"]["name"].as_str().map(|name| SliceNews::Gone(name.to_owned()))
            }
            Some("ERROR") if object["code"] == GONE => return Err(Failure::Compacted),
            Some("ERROR") => {
                let said = object["message"].as_str().unwrap_or("an error without a message");
                return Err(Failure::Reported(said.chars().take(200).collect()));
            }
            // Bookmarks tell versions alone.
            _ => None,
        };
        Ok(news.into_iter().collect())
    }

    fn away() -> Option<SliceNews> {
        None
    }
}

/// Reads a slice of endpoints: its name, and the addresses of all pods in it, ready or not. The nodes
/// find out for themselves which of them live.
fn slice(object: &Value, link: &Link) -> Option<(String, Vec<SocketAddr>)> {
    let name = object["metadata"]["name"].as_str()?;
    let array = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let endpoints = array(&object["endpoints"]);
    let port = match port(&array(&object["ports"])) {
        Ok(port) => port,
        // A slice without pods may have no ports.
        Err(_) if endpoints.is_empty() => 0,
        Err(why) => {
            link.on_unreadable(name, &why);
            return None;
        }
    };
    let addresses = endpoints.iter().flat_map(|endpoint| array(&endpoint["addresses"]));
    let addresses = addresses.filter_map(|address| address.as_str()?.parse::<IpAddr>().ok());
    Some((name.to_owned(), addresses.map(|address| SocketAddr::new(address, port)).collect()))
}

/// Returns the port of the nodes: the one with the name, or the only one of UDP.
fn port(ports: &[Value]) -> Result<u16, String> {
    let of_udp: Vec<&Value> = ports.iter().filter(|port| port["protocol"] == "UDP").collect();
    let named = of_udp.iter().find(|port| port["name"] == PORT_NAME);
    let chosen = named.or(of_udp.first().filter(|_| of_udp.len() == 1));
    let number = chosen.and_then(|port| port["port"].as_u64()).and_then(|port| u16::try_from(port).ok());
    number.filter(|&port| port > 0).ok_or_else(|| {
        format!("expected one UDP port, or one named `{PORT_NAME}`, saw {} UDP ports", of_udp.len())
    })
}
