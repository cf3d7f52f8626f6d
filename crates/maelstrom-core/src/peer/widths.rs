//! The longest datagram of each path to the peer.
//!
//! A report tells the longest datagram that arrived, whatever way it took. With several paths that would be
//! the widest one, and datagrams of that length would disappear on the others. There, each path is asked by
//! questions padded to the length that is tried, which are answered on the same path.

use super::Peer;
use super::reports::ReportKind;
use crate::outbox::{Envelope, Outbox};
use crate::path_mtu::PathMtu;
use crate::paths::PathSet;

/// Knowledge of each path, in their order.
pub(super) struct Widths(Vec<PathMtu>);

impl Widths {
    /// Paths to a peer whose datagrams have `outer` bytes of IP and UDP headers.
    pub(super) fn new(wan_mtu: usize, outer: usize, paths: usize) -> Self {
        Self(vec![PathMtu::new(wan_mtu, outer); paths.max(1)])
    }

    /// Begins a session.
    pub(super) fn restart(&mut self) {
        self.0.iter_mut().for_each(PathMtu::restart);
    }

    /// The path with this number.
    pub(super) fn of(&mut self, path: usize) -> Option<&mut PathMtu> {
        self.0.get_mut(path)
    }

    /// The only path, or the first of several.
    pub(super) fn first(&mut self) -> &mut PathMtu {
        &mut self.0[0]
    }

    /// The narrowest one of these paths, because a datagram may take any of them.
    pub(super) fn narrowest(&self, paths: PathSet) -> &PathMtu {
        let used = paths.iter().filter_map(|path| self.0.get(path));
        used.min_by_key(|path| path.limit()).unwrap_or(&self.0[0])
    }

    /// Gives up the questions that are under way, because a full queue has no room for long datagrams.
    pub(super) fn on_full_queue(&mut self, now_us: u64) {
        self.0.iter_mut().for_each(|path| path.on_full_queue(now_us));
    }
}

impl Peer {
    /// The path that limits datagrams.
    pub(crate) fn path_mtu(&self) -> &PathMtu {
        self.widths.narrowest(self.paths.usable())
    }

    /// Takes the kernel's MTU of a path to the peer.
    pub(crate) fn handle_path_mtu(&mut self, now_us: u64, path: usize, mtu: usize) {
        if let Some(path) = self.widths.of(path) {
            path.on_hint(now_us, mtu);
        }
        self.follow_widths(now_us);
    }

    /// Sends what is due to find the longest datagram of each path.
    pub(super) fn probe_widths(&mut self, now_us: u64, out: &mut Outbox) {
        let may_ask = self.is_up && !self.far().is_standing;
        if may_ask && self.paths.are_several() {
            for path in self.paths.ready_for_length(now_us).iter() {
                let due = self.widths.of(path).and_then(|width| width.poll_probe(now_us));
                if let Some(len) = due {
                    let question = self.paths.ask_by_length(now_us, path, len, self.on_link(len));
                    self.send_probe(
                        now_us,
                        Envelope::to(self.index).by(PathSet::one(path)),
                        &question,
                        len,
                        out,
                    );
                }
            }
        } else if may_ask && let Some(len) = self.widths.first().poll_probe(now_us) {
            self.send_report_as(now_us, ReportKind::Probe(len), out);
        }
        self.follow_widths(now_us);
    }

    pub(super) fn follow_widths(&mut self, now_us: u64) {
        let longest = self.path_mtu().limit();
        self.egress.set_datagram_max(now_us, longest);
    }
}
