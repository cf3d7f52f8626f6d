//! Keys in the status.

use maelstrom_core::KeyState;
use serde::{Deserialize, Serialize};

/// Progress of a change of the key that the gateway shares with a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStatus {
    /// `single` unless the key is being changed; `waiting`, `offered`, `changed` and `left_over` as the
    /// change goes on; `different`, `behind` and `crossed` if the keys of both ends do not fit together.
    pub state: String,
    /// The state as a sentence.
    pub text: String,
    /// The next step; null if none is left.
    pub remedy: Option<String>,
}

impl KeyStatus {
    pub(super) fn of(state: KeyState) -> Self {
        Self {
            state: state.id().to_owned(),
            text: state.to_string(),
            remedy: state.remedy().map(str::to_owned),
        }
    }
}
