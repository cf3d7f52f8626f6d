//! The knowledge of one member of the rack about another one.

use super::beat::{Beat, Says};
use super::handover::OtherHandover;
use crate::counters::Unheeded;
use crate::key::Token;

/// Silence after which a member counts as gone.
pub(super) const SILENCE_US: u64 = 500_000;
/// Time that a member has at least to be heard after this one stood still.
const GRACE_US: u64 = 250_000;
/// Time after which a member that stayed has not been gone.
const FORGIVE_US: u64 = 60_000_000;
/// Wait for a member that was gone twice. It doubles each further time.
const SETTLE_US: u64 = 1_000_000;
/// Longest such wait.
const SETTLE_MAX_US: u64 = 16_000_000;
/// Minimum interval between answers to heartbeats that show nothing.
const ANSWER_US: u64 = 20_000;
/// Maximum number of earlier tokens that are remembered.
pub(super) const PAST_MAX: usize = 64;

/// Another member.
#[derive(Debug, Default)]
pub(super) struct Other {
    /// Its token, which came with our own.
    token: Option<Token>,
    /// Highest number of a heartbeat with this token.
    number: u64,
    /// Tokens that it had before, while ours has been in use. A record of its heartbeats shows nothing.
    past: Vec<Token>,
    /// The latest token that it may have, and that nothing has shown.
    candidate: Option<Token>,
    next_answer_us: u64,
    /// Times of the first heartbeat since it was gone, and of the latest one; `None` while it is gone.
    heard_us: Option<(u64, u64)>,
    /// Number of times that it has gone, or has ceased to be ready, as long as that matters.
    losses: u32,
    says: Says,
}

/// Result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is of a member that is alive.
    Alive { is_news: bool, returns: bool },
    /// It may be a record. The member answers if it is alive.
    Unproven { answers: bool },
}

impl Other {
    /// Returns what another process of this gateway must know of it.
    pub(super) fn describe(&self) -> OtherHandover {
        OtherHandover { token: self.token, number: self.number, past: self.past.clone() }
    }

    /// Continues what another process knew of it. It counts as present when it is heard.
    pub(super) fn resume(left: &OtherHandover) -> Self {
        let past = left.past.iter().take(PAST_MAX).copied().collect();
        Self { token: left.token, number: left.number, past, ..Self::default() }
    }

    /// Takes a heartbeat of this member. `own`: our token.
    pub(super) fn hear(&mut self, now_us: u64, own: Token, beat: &Beat) -> Result<Heard, Unheeded> {
        if !self.accept(own, beat)? {
            let answers = now_us >= self.next_answer_us;
            if answers {
                self.next_answer_us = now_us + ANSWER_US;
            }
            return Ok(Heard::Unproven { answers });
        }
        if self.heard_us.is_some() && self.says.loses(&beat.says) {
            // Far gateways that come and go move a part as a member does.
            self.losses = self.losses.saturating_add(1);
            self.heard_us = Some((now_us, now_us));
        }
        let is_news = self.says != beat.says || self.heard_us.is_none();
        let returns = self.heard_us.is_none();
        self.says = beat.says;
        let since_us = self.heard_us.map_or(now_us, |(since_us, _)| since_us);
        self.heard_us = Some((since_us, now_us));
        Ok(Heard::Alive { is_news, returns })
    }

    /// Takes token and number of a heartbeat; returns whether the member has sent it since it knows our
    /// token, `own`. Otherwise it may be a record.
    ///
    /// # Errors
    /// [`Unheeded::Replayed`] if it is one.
    pub(super) fn accept(&mut self, own: Token, beat: &Beat) -> Result<bool, Unheeded> {
        if beat.token == own || self.past.contains(&beat.token) {
            return Err(Unheeded::Replayed);
        }
        if beat.echo != own {
            self.suppose(beat.token);
            return Ok(false);
        }
        if self.token == Some(beat.token) {
            if beat.number <= self.number {
                return Err(Unheeded::Replayed);
            }
        } else {
            // It has started again.
            self.past.extend(self.token.replace(beat.token));
            if self.heard_us.take().is_some() {
                self.on_loss();
            }
        }
        self.number = beat.number;
        Ok(true)
    }

    /// Notes a token that the member may have.
    pub(super) fn suppose(&mut self, token: Token) {
        self.candidate = Some(token);
    }

    /// Whether our own token must change, because no more tokens of the member can be remembered.
    pub(super) fn is_full(&self) -> bool {
        self.past.len() >= PAST_MAX
    }

    /// Forgets what depends on our token, which has changed.
    pub(super) fn on_own_change(&mut self) {
        self.past.clear();
        self.number = 0;
    }

    /// The token to echo to it.
    pub(super) fn echo(&self) -> Token {
        let proven = self.token.filter(|_| self.heard_us.is_some());
        proven.or(self.candidate).or(self.token).unwrap_or(Token::UNKNOWN)
    }

    /// Whether it is alive.
    pub(super) fn is_present(&self) -> bool {
        self.heard_us.is_some()
    }

    /// Whether it has been alive long enough for a part to be given back to it. One that comes and goes must
    /// stay longer each time.
    pub(super) fn is_settled(&self, now_us: u64) -> bool {
        let wait_us = match self.losses {
            0 | 1 => 0,
            losses => (SETTLE_US << (losses - 2).min(8)).min(SETTLE_MAX_US),
        };
        self.heard_us.is_some_and(|(since_us, _)| now_us >= since_us.saturating_add(wait_us))
    }

    /// Its latest statements, while it is alive.
    pub(super) fn says(&self) -> Option<&Says> {
        self.is_present().then_some(&self.says)
    }

    /// Time since it was heard, if it is alive.
    pub(super) fn silence_us(&self, now_us: u64) -> Option<u64> {
        self.heard_us.map(|(_, heard_us)| now_us.saturating_sub(heard_us))
    }

    /// Notes that this gateway stood still, so that the silence of others shows nothing.
    pub(super) fn excuse(&mut self, now_us: u64) {
        if let Some((_, heard_us)) = &mut self.heard_us {
            *heard_us = (*heard_us).max((now_us + GRACE_US).saturating_sub(SILENCE_US));
        }
    }

    /// Returns whether it is gone since the last call.
    pub(super) fn misses(&mut self, now_us: u64) -> bool {
        let Some((since_us, heard_us)) = self.heard_us else { return false };
        if now_us < heard_us + SILENCE_US {
            if now_us >= since_us + FORGIVE_US {
                self.losses = 0;
            }
            return false;
        }
        self.heard_us = None;
        self.on_loss();
        true
    }

    fn on_loss(&mut self) {
        // One that had said that it stops was lost then.
        let nothing = Says::default();
        self.losses = self.losses.saturating_add(u32::from(self.says.loses(&nothing)));
        self.says = nothing;
    }
}
