//! The section `[membership]`: where the node learns of the other nodes.

use std::path::PathBuf;

use diagnostics::quoted;
use diagnostics::settings::{Fallback, Fault, Integer, List, Optional, Section, Text};

use super::sections::path;
use crate::registry::http::{Endpoint, EndpointMistake};
use crate::registry::{EtcdSettings, KubernetesSettings};

/// Longest prefix of keys in bytes.
const PREFIX_LENGTH_MAX: usize = 200;

fn seeds() -> List<Text<String>> {
    let entry = Text::new("", |text| {
        let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        match port {
            Some(port) if port > 0 => Ok(text.to_owned()),
            _ => Err(Fault::bad("holds an entry without a port")
                .seen(quoted(text))
                .help("write `\"ADDRESS:PORT\"`")),
        }
    });
    let expected = "an array of addresses or host names with ports, such as `[\"10.0.0.7:7900\"]`".to_owned();
    List { expected, entry, min: 0, max: 1 << 10 }
}

/// Checks the address of a service.
fn endpoint(text: &str) -> Result<String, Fault> {
    match Endpoint::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(EndpointMistake::Tls) => Err(Fault::bad("needs TLS, which this node does not speak")
            .seen(quoted(text))
            .help("run a proxy on this host and name it, such as `stunnel` or `kubectl proxy`")),
        Err(EndpointMistake::Form) => Err(Fault::bad("is no address of a service")
            .seen(quoted(text))
            .help("write `\"http://HOST:PORT\"`")),
    }
}

fn etcd() -> List<Text<String>> {
    let expected = "an array of addresses, such as `[\"http://10.0.0.1:2379\"]`".to_owned();
    List { expected, entry: Text::new("", endpoint), min: 0, max: 16 }
}

/// A prefix of keys that begins with a slash and ends with none.
fn prefix() -> Text<String> {
    Text::new("a path of letters, digits and `._-`, such as `/undrop/site-a`", |text| {
        let is_part = |part: &str| {
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
            !part.is_empty() && part.bytes().all(is_valid)
        };
        match text.strip_prefix('/') {
            Some(rest) if text.len() <= PREFIX_LENGTH_MAX && rest.split('/').all(is_part) => {
                Ok(text.to_owned())
            }
            _ => Err(Fault::bad("is no prefix of keys").seen(quoted(text))),
        }
    })
}

/// The namespace and the name of a service of Kubernetes, if the text has this form.
pub(crate) fn parse_service(text: &str) -> Option<(&str, &str)> {
    // RFC 1123, as Kubernetes has it.
    let is_label = |label: &str| {
        let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_valid)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.split_once('/').filter(|(namespace, name)| is_label(namespace) && is_label(name))
}

fn service() -> Text<String> {
    Text::new("a namespace and a service, such as `default/undrop`", |text| match parse_service(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(Fault::bad("is no service").seen(quoted(text)).help("write `\"NAMESPACE/SERVICE\"`")),
    })
}

diagnostics::settings! {
    /// How the node finds the other nodes: the section `[membership]`. They come from one source: gossip, a
    /// file, etcd or Kubernetes.
    #[derive(Clone, Debug, PartialEq)]
    pub struct MembershipSection(MembershipDraft): "membership" as "[membership]" {
        /// Seed addresses: nodes through which this node joins the cluster. One live node is enough; the
        /// first node of a cluster needs none.
        seeds: Vec<String> {
            form: seeds(),
            default: Fallback::Toml("[]"),
            example: "seeds = [\"10.0.0.7:7900\"]",
        }
        /// File that names all members, instead of gossip.
        file: Option<PathBuf> {
            form: Optional(path("the path of a file")),
            default: Fallback::Absent("gossip"),
            example: "file = \"members.toml\"",
        }
        /// Servers of etcd, instead of gossip. Each node registers there with a lease, and is removed when
        /// the lease expires. The node uses one server, and another one if that fails.
        etcd: Vec<String> {
            form: etcd(),
            default: Fallback::Toml("[]"),
            example: "etcd = [\"http://10.0.0.1:2379\", \"http://10.0.0.2:2379\"]",
        }
        /// Prefix of the keys in etcd. It is the same for the whole cluster, and differs from that of other
        /// clusters.
        etcd_prefix: String {
            form: prefix(),
            default: Fallback::Toml("\"/undrop\""),
            example: "etcd_prefix = \"/undrop/site-a\"",
        }
        /// Length of a lease in etcd, in seconds: a node that has failed is removed after that time.
        etcd_lease_s: u64 {
            form: Integer::new(2, 3_600),
            default: Fallback::Toml("10"),
            example: "etcd_lease_s = 10",
        }
        /// Service of Kubernetes whose pods are the nodes, `"NAMESPACE/SERVICE"`, instead of gossip. It has
        /// one UDP port, or one that is named `undrop`.
        kubernetes: Option<String> {
            form: Optional(service()),
            default: Fallback::Absent("gossip"),
            example: "kubernetes = \"default/undrop\"",
        }
        /// Address of the API of Kubernetes: that of a `kubectl proxy` in the pod.
        kubernetes_api: String {
            form: Text::new("an address such as `http://127.0.0.1:8001`", endpoint),
            default: Fallback::Toml("\"http://127.0.0.1:8001\""),
            example: "kubernetes_api = \"http://127.0.0.1:8001\"",
        }
    }
}

impl Default for MembershipSection {
    fn default() -> Self {
        Section::defaults()
    }
}

impl MembershipSection {
    /// Returns the key that names where the members come from; `None` if the node waits for others.
    pub(crate) fn source(&self) -> Option<&'static str> {
        let keys = [
            ("file", self.file.is_some()),
            ("seeds", !self.seeds.is_empty()),
            ("etcd", !self.etcd.is_empty()),
            ("kubernetes", self.kubernetes.is_some()),
        ];
        keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
    }

    /// Returns the settings of etcd, if the members come from there. Says which of them is wrong.
    pub(crate) fn etcd(&self) -> Result<Option<EtcdSettings>, String> {
        if self.etcd.is_empty() {
            return Ok(None);
        }
        let endpoints: Result<Vec<Endpoint>, String> =
            self.etcd.iter().map(|text| parse_endpoint("membership.etcd", text)).collect();
        let (prefix, ttl_s) = (self.etcd_prefix.clone(), self.etcd_lease_s);
        Ok(Some(EtcdSettings { endpoints: endpoints?, prefix, ttl_s }))
    }

    /// Returns the settings of Kubernetes, if the members come from there. Says which of them is wrong.
    pub(crate) fn kubernetes(&self) -> Result<Option<KubernetesSettings>, String> {
        let Some(text) = &self.kubernetes else { return Ok(None) };
        let (namespace, service) = parse_service(text)
            .ok_or_else(|| format!("membership.kubernetes: expected NAMESPACE/SERVICE, saw {text:?}"))?;
        let endpoint = parse_endpoint("membership.kubernetes_api", &self.kubernetes_api)?;
        Ok(Some(KubernetesSettings {
            endpoint,
            namespace: namespace.to_owned(),
            service: service.to_owned(),
        }))
    }
}

/// Parses the address of a service that a program has set.
fn parse_endpoint(key: &str, text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text).map_err(|_| format!("{key}: expected http://HOST:PORT, saw {text:?}"))
}
