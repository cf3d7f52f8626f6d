//! The operations of etcd that a registry needs, by its JSON gateway (etcd 3.4 and later).

use std::net::SocketAddr;

use keyfile::base64;
use membership::{News, Registration};
use serde_json::{Value, json};

use super::entry;
use super::failure::Failure;
use super::http::{Endpoint, Request, Response};
use super::link::Link;
use super::watcher::{Found, Service};

/// Words of etcd about a lease that has expired or that it has forgotten.
const NO_LEASE: &str = "requested lease not found";

/// Header of all requests: a server that has lost its leader refuses, and ends streams of changes. It could
/// tell no news any more, and would be silent.
const NEEDS_LEADER: &str = "Grpc-Metadata-hasleader: true\r\n";

/// The entries of a cluster in etcd, under a prefix of keys.
#[derive(Clone, Debug)]
pub(super) struct Etcd {
    /// Prefix of the keys of members; it ends with a slash.
    prefix: String,
}

/// A lease: the entries with it are removed when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease(String);

impl Etcd {
    /// Returns the cluster whose keys begin with `prefix`.
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}/members/") }
    }

    fn key(&self, address: SocketAddr) -> String {
        to_base64(format!("{}{address}", self.prefix).as_bytes())
    }

    /// Returns the node whose entry has a key.
    fn address(&self, key: &[u8]) -> Option<SocketAddr> {
        std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?.parse().ok()
    }

    /// Returns the fields that name all keys of the cluster.
    fn range(&self) -> Value {
        // The keys after the last one with this prefix begin with the byte after the slash.
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        json!({ "key": to_base64(self.prefix.as_bytes()), "range_end": to_base64(end.as_bytes()) })
    }

    /// Begins a lease.
    pub(super) fn grant(&self, endpoint: &Endpoint, ttl_s: u64) -> Result<Lease, Failure> {
        let answer = ask(endpoint, "/v3/lease/grant", &json!({ "TTL": ttl_s.to_string() }))?;
        match answer["ID"].as_str() {
            Some(id) if !id.is_empty() => Ok(Lease(id.to_owned())),
            _ => Err(Failure::answer("expected the number of a lease, saw none")),
        }
    }

    /// Prolongs a lease.
    pub(super) fn keep_alive(&self, endpoint: &Endpoint, lease: &Lease) -> Result<(), Failure> {
        let answer = ask(endpoint, "/v3/lease/keepalive", &json!({ "ID": lease.0 }))?;
        // A lease that does not exist has no time left, which the answer leaves out.
        match number(&answer["result"]["TTL"]) {
            Some(left) if left > 0 => Ok(()),
            _ if answer["result"].is_object() => Err(Failure::NoLease),
            _ => Err(reported(&answer["error"])),
        }
    }

    /// Stores the entry of this node, which is removed when the lease expires.
    pub(super) fn put(
        &self,
        endpoint: &Endpoint,
        lease: &Lease,
        address: SocketAddr,
        entry: &str,
    ) -> Result<(), Failure> {
        let value = to_base64(entry.as_bytes());
        let body = json!({ "key": self.key(address), "value": value, "lease": lease.0 });
        ask(endpoint, "/v3/kv/put", &body).map(drop)
    }

    /// Ends a lease, which removes the entries with it.
    pub(super) fn revoke(&self, endpoint: &Endpoint, lease: &Lease) -> Result<(), Failure> {
        ask(endpoint, "/v3/lease/revoke", &json!({ "ID": lease.0 })).map(drop)
    }

    /// Reads the entry of a key and a value. `None` if it is none, which is noted.
    fn read_entry(&self, kv: &Value, link: &Link) -> Option<Registration> {
        let bytes = |field: &str| from_base64(kv[field].as_str().unwrap_or_default());
        let (key, value) = (bytes("key")?, bytes("value")?);
        let read = entry::read(&value).and_then(|registration| match self.address(&key) {
            Some(address) if address == registration.address => Ok(registration),
            _ => Err(format!("expected the key of {}, saw another one", registration.address)),
        });
        match read {
            Ok(registration) => Some(registration),
            Err(why) => {
                link.on_unreadable(&String::from_utf8_lossy(&key), &why);
                None
            }
        }
    }
}

impl Service for Etcd {
    type News = News;

    const NAME: &'static str = "etcd";

    fn list(&mut self, endpoint: &Endpoint, link: &Link) -> Result<Found<News>, Failure> {
        let answer = ask(endpoint, "/v3/kv/range", &self.range())?;
        let position = number(&answer["header"]["revision"])
            .ok_or_else(|| Failure::answer("expected the revision of the list, saw none"))?;
        let all = items(&answer["kvs"]).filter_map(|kv| self.read_entry(kv, link)).collect();
        Ok(Found { all: News::All(all), position: position.to_string() })
    }

    fn watch(&mut self, endpoint: &Endpoint, position: &str) -> Result<Response, Failure> {
        let mut create = self.range();
        create["start_revision"] = Value::String((parsed(position)? + 1).to_string());
        endpoint.ask(post("/v3/watch", &json!({ "create_request": create }).to_string()))
    }

    fn read(&mut self, line: &[u8], position: &str, link: &Link) -> Result<Vec<News>, Failure> {
        let message: Value = serde_json::from_slice(line)?;
        if !message["error"].is_null() {
            return Err(reported(&message["error"]));
        }
        let result = &message["result"];
        if number(&result["compact_revision"]).is_some_and(|revision| revision > 0) {
            return Err(Failure::Compacted);
        }
        if result["canceled"] == true {
            return Err(Failure::Reported(result["cancel_reason"].as_str().unwrap_or("canceled").to_owned()));
        }
        // A server that has begun from nothing would wait until its revisions reach the position.
        let listed = parsed(position)?;
        if result["created"] == true && number(&result["header"]["revision"]).is_none_or(|seen| seen < listed)
        {
            return Err(Failure::Compacted);
        }
        let change = |event: &Value| {
            if event["type"] != "DELETE" {
                return self.read_entry(&event["kv"], link).map(News::Set);
            }
            let key = from_base64(event["kv"]["key"].as_str()?)?;
            self.address(&key).map(News::Gone)
        };
        Ok(items(&result["events"]).filter_map(change).collect())
    }

    fn away() -> Option<News> {
        Some(News::Away)
    }
}

/// Sends a request, and returns the answer.
fn ask(endpoint: &Endpoint, path: &str, body: &Value) -> Result<Value, Failure> {
    match endpoint.ask_whole(post(path, &body.to_string())) {
        Ok(answer) => Ok(serde_json::from_slice(&answer)?),
        Err(Failure::Status { text, .. }) if text.contains(NO_LEASE) => Err(Failure::NoLease),
        Err(failure) => Err(failure),
    }
}

fn post<'a>(path: &'a str, body: &'a str) -> Request<'a> {
    Request { method: "POST", path, headers: NEEDS_LEADER, body }
}

fn reported(error: &Value) -> Failure {
    let said = ["message", "error"].iter().find_map(|field| error[field].as_str());
    Failure::Reported(said.map_or_else(|| error.to_string(), str::to_owned).chars().take(200).collect())
}

fn items(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// Returns a number, which the gateway writes as text.
fn number(value: &Value) -> Option<u64> {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_u64())
}

fn parsed(position: &str) -> Result<u64, Failure> {
    position.parse().map_err(|_| Failure::answer("expected the number of a revision"))
}

/// Returns bytes as the JSON of etcd states them.
fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    base64::encode(bytes, &mut text);
    text
}

/// Returns the bytes of a text in the JSON of etcd. `None` if it is no base64.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    base64::decode(text, &mut bytes).ok()?;
    Some(bytes)
}
