//! A configuration as far as it could be understood: each value with its place,
//! `None` where the value is wrong.

use diagnostics::Findings;
use diagnostics::settings::{Document, Root, Section as _};

use super::flow::{FlowDraft, FlowSection};
use super::history::{HistoryDraft, HistorySection};
use super::membership::{MembershipDraft, MembershipSection};
use super::sections::{
    AnnounceDraft, AnnounceSection, BuffersDraft, BuffersSection, FifoDraft, FifoSection, KeyDraft,
    KeySection, NakDraft, NakSection, NodeDraft, NodeSection, RepairDraft, RepairSection, layout,
};

/// Settings of a node. A key that is left out has its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The node and its addresses.
    pub node: NodeSection,
    /// How the node finds the other nodes.
    pub membership: MembershipSection,
    /// Repairs.
    pub repair: RepairSection,
    /// Requests for packets that repairs do not recover.
    pub nak: NakSection,
    /// Announcements of a sender that falls silent.
    pub announce: AnnounceSection,
    /// Bounds on what ordered subscriptions hold back.
    pub fifo: FifoSection,
    /// Buffers.
    pub buffers: BuffersSection,
    /// Flow control.
    pub flow: FlowSection,
    /// Bounds of the history that the node keeps for those that join later.
    pub history: HistorySection,
    /// The cluster key.
    pub key: KeySection,
}

/// The draft of [`Config`].
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) node: NodeDraft,
    pub(super) membership: MembershipDraft,
    pub(super) repair: RepairDraft,
    pub(super) nak: NakDraft,
    pub(super) announce: AnnounceDraft,
    pub(super) fifo: FifoDraft,
    pub(super) buffers: BuffersDraft,
    pub(super) flow: FlowDraft,
    pub(super) history: HistoryDraft,
    pub(super) key: KeyDraft,
}

impl Draft {
    /// Reads all sections of a file.
    pub(super) fn read(table: &Root<'_>, findings: &mut Findings) -> Self {
        let layout = layout();
        let mut document = Document::new(table, &layout, findings);
        let draft = Self {
            node: document.section::<NodeSection>(),
            membership: document.section::<MembershipSection>(),
            repair: document.section::<RepairSection>(),
            nak: document.section::<NakSection>(),
            announce: document.section::<AnnounceSection>(),
            fifo: document.section::<FifoSection>(),
            buffers: document.section::<BuffersSection>(),
            flow: document.section::<FlowSection>(),
            history: document.section::<HistorySection>(),
            key: document.section::<KeySection>(),
        };
        document.finish();
        draft
    }

    /// The draft of settings that come from a program; also checks each of them.
    pub(super) fn of(config: &Config, findings: &mut Findings) -> Self {
        config.node.check(findings);
        config.membership.check(findings);
        config.repair.check(findings);
        config.nak.check(findings);
        config.announce.check(findings);
        config.fifo.check(findings);
        config.buffers.check(findings);
        config.flow.check(findings);
        config.history.check(findings);
        config.key.check(findings);
        Self {
            node: config.node.to_draft(),
            membership: config.membership.to_draft(),
            repair: config.repair.to_draft(),
            nak: config.nak.to_draft(),
            announce: config.announce.to_draft(),
            fifo: config.fifo.to_draft(),
            buffers: config.buffers.to_draft(),
            flow: config.flow.to_draft(),
            history: config.history.to_draft(),
            key: config.key.to_draft(),
        }
    }

    /// The configuration.
    ///
    /// # Panics
    /// If there is a gap: the reader must have reported an error for it.
    pub(super) fn finish(self) -> Config {
        Config {
            node: NodeSection::finish(self.node),
            membership: MembershipSection::finish(self.membership),
            repair: RepairSection::finish(self.repair),
            nak: NakSection::finish(self.nak),
            announce: AnnounceSection::finish(self.announce),
            fifo: FifoSection::finish(self.fifo),
            buffers: BuffersSection::finish(self.buffers),
            flow: FlowSection::finish(self.flow),
            history: HistorySection::finish(self.history),
            key: KeySection::finish(self.key),
        }
    }
}
