//! The file by the table of keys, then the paths in it: the control socket's, and the key files, which are
//! read.

use std::io;
use std::path::{Path, PathBuf};

use diagnostics::settings::{Document, Fault, KeyInfo, Section as _, Setting, parse};
use diagnostics::{Diagnostic, Findings, Source, quoted, shell_word};
use keyfile::KeyError;
use maelstrom_core::rack::MEMBERS_MAX;
use maelstrom_core::{CLASSES_MAX, PeerKey, SECTIONS_MAX};

use super::draft::{Draft, PeerDraft};
use super::keys::{CONTROL_DEFAULT, ClassKeys, CodeKeys, Gateway, GatewayDraft, PEERS_MAX, layout};
use super::multicast::MulticastKeys;
use super::peer_keys::{PeerKeys, PeerKeysDraft};
use super::rack::{MemberKeys, RackDraft, RackKeys};
use super::split::Split;
use super::values::SOCKET_PATH_BYTES_MAX;

/// Reads a key file; tests use another function in its place.
pub(super) type ReadKey<'a> = &'a mut dyn FnMut(&Path) -> Result<PeerKey, KeyError>;

/// Reads the whole file. `None` if its syntax is wrong.
pub(super) fn read(source: &Source, findings: &mut Findings, read_key: ReadKey<'_>) -> Option<Draft> {
    let table = parse(source.text(), findings)?;
    let layout = layout();
    let mut document = Document::new(&table, &layout, findings);
    let mut gateway = read_gateway(&mut document);
    let code = document.section::<CodeKeys>();
    let classes = document.sections::<ClassKeys>(CLASSES_MAX, "join classes that have the same `protect`");
    let classes = classes.into_iter().map(|(_, class)| class).collect();
    let mut split = document.section::<Split>();
    let rack_keys = document.section::<RackKeys>();
    let members = document.sections::<MemberKeys>(MEMBERS_MAX, "divide the members into two racks");
    let members = members.into_iter().map(|(_, member)| member).collect();
    let multicast = document.sections::<MulticastKeys>(SECTIONS_MAX, "join sections of one interface");
    let multicast = multicast.into_iter().map(|(_, section)| section).collect();
    let peers = read_peers(&mut document);
    document.finish();
    resolve_control(&mut gateway, source, findings);
    if let Some(Setting { value: Some(record), .. }) = &mut gateway.loss_record {
        *record = source.resolve(record);
    }
    if let Some(Setting { value: Some(directory), .. }) = &mut split.spool_dir {
        *directory = source.resolve(directory);
    }
    let mut keys = KeyFiles { source, findings, read: read_key };
    let key = rack_keys.key_file.clone().and_then(|file| keys.key_of_rack(file));
    let rack = RackDraft { keys: rack_keys, key, members };
    let peers = peers.into_iter().map(|(title, peer)| keys.complete(&title, peer));
    Some(Draft { gateway, code, classes, split, rack, multicast, peers: peers.collect() })
}

/// The control socket of a file whose syntax is wrong: that of the first line that sets it, or else the
/// default.
pub(super) fn control_by_line(source: &Source) -> PathBuf {
    source
        .text_by_line("control")
        .map_or_else(|| PathBuf::from(CONTROL_DEFAULT), |path| source.resolve(Path::new(path)))
}

fn read_gateway(document: &mut Document<'_, '_>) -> GatewayDraft {
    if document.has(Gateway::NAME) {
        return document.section::<Gateway>();
    }
    let finding = Diagnostic::error("missing-section", "the section [gateway] is missing");
    document.report(finding.help("start the file with `[gateway]`, and set `wan` and `listen` in it"));
    GatewayDraft::default()
}

fn read_peers(document: &mut Document<'_, '_>) -> Vec<(String, PeerKeysDraft)> {
    if !document.has(PeerKeys::NAME) {
        let finding = Diagnostic::error("missing-section", "there is no peer: nothing would be protected");
        document.report(finding.help("add a `[[peer]]` section with `address`, `networks` and `key_file`"));
    }
    document.sections::<PeerKeys>(PEERS_MAX, "run several gateways, each for some of the peers")
}

fn resolve_control(gateway: &mut GatewayDraft, source: &Source, findings: &mut Findings) {
    let Some(control) = &mut gateway.control else { return };
    let path = source.resolve(&control.value);
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        let fault = Fault::bad("is too long for the path of a socket");
        let fault = fault.seen(format!("{} bytes", path.as_os_str().len()));
        findings.add(Gateway::key("control").diagnose(Gateway::HEADER, control.span.clone(), fault));
        gateway.control = None;
    } else {
        control.value = path;
    }
}

/// The key files of the peers.
struct KeyFiles<'a> {
    source: &'a Source,
    findings: &'a mut Findings,
    read: ReadKey<'a>,
}

impl KeyFiles<'_> {
    /// Completes a peer by the keys from its key files; `title` is that of its section.
    fn complete(&mut self, title: &str, peer: PeerKeysDraft) -> PeerDraft {
        let key = peer.key_file.and_then(|file| self.key_of(title, "key_file", file));
        let next_key = peer.next_key_file.and_then(|file| {
            let file = Setting { value: file.value?, span: file.span };
            self.key_of(title, "next_key_file", file)
        });
        let networks = peer.networks.map_or(Vec::new(), |networks| networks.value);
        let PeerKeysDraft { name, address, carrier, rack, wan, path, mode, route, fail, .. } = peer;
        PeerDraft {
            name,
            address,
            networks,
            key,
            next_key,
            carrier,
            rack,
            wan,
            path,
            mode,
            route,
            fail,
            paths: peer.paths,
            path_use: peer.r#use,
            resequence_ms: peer.resequence_ms,
            aggregate_us: peer.aggregate_us,
        }
    }

    /// The key that the members of the rack share.
    fn key_of_rack(&mut self, file: Setting<Option<PathBuf>>) -> Option<Setting<PeerKey>> {
        let file = Setting { value: file.value?, span: file.span };
        self.key_in(&RackKeys::key("key_file"), RackKeys::HEADER, file)
    }

    /// The key in the file that the setting `name` names.
    fn key_of(&mut self, title: &str, name: &str, file: Setting<PathBuf>) -> Option<Setting<PeerKey>> {
        self.key_in(&PeerKeys::key(name), title, file)
    }

    fn key_in(&mut self, key: &KeyInfo, title: &str, file: Setting<PathBuf>) -> Option<Setting<PeerKey>> {
        let path = self.source.resolve(&file.value);
        match (self.read)(&path) {
            Ok(value) => Some(Setting { value, span: file.span }),
            Err(error) => {
                let fault = key_fault(&path, &error).seen(quoted(&file.value.to_string_lossy()));
                self.findings.add(key.diagnose(title, file.span, fault));
                None
            }
        }
    }
}

/// No remedy is to make a key: a gateway with another key than its peer protects nothing.
fn key_fault(path: &Path, error: &KeyError) -> Fault {
    let shown = shell_word(path);
    let help = match error {
        KeyError::Unreadable(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!("chgrp {{group of this process}} {shown} && chmod 640 {shown}, as root")
        }
        KeyError::Unreadable(error) if error.kind() == io::ErrorKind::NotFound => {
            format!(
                "correct the path, or copy the key file of this pair of gateways from the other one to {shown}"
            )
        }
        KeyError::Unreadable(_) => format!("let this process read {shown}"),
        KeyError::Mode { .. } => format!("chmod 600 {shown}"),
        KeyError::Owner { .. } => format!("chown root {shown}"),
        KeyError::Link => "name the file that the link leads to".to_owned(),
        _ => format!("copy the key file of this pair of gateways from the other one to {shown} again"),
    };
    Fault::new("key-file", format!("names a file without a usable key: {error}")).help(help)
}
