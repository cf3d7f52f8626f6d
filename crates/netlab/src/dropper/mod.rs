//! Loses packets as they arrive at an interface, by a model of loss: a program in the kernel (`bpf/drop.c`).
//!
//! For tests and measurements of what has no link of ours under it, such as multicast on a [`crate::BridgeLan`]: nothing
//! waits, and nothing is copied.

mod program;

use loss::{LossModel, start_share};
use netio::bpf::Attach;

pub use self::program::{DropCounts, DropFilter, LostPacket, TOLD_LEN};
use self::program::{DropModel, Program};
use crate::{LabError, Namespace};

/// A loser of packets at one interface; it goes when this is dropped, and with the process.
///
/// Each has its own state and counters. Packets are lost before anything else on the interface sees them, so that they
/// might as well have been lost on the wire.
///
/// ```
/// # fn main() -> Result<(), netlab::LabError> {
/// # if !netlab::privilege::dropper_or_skip("Dropper example") { return Ok(()); }
/// use loss::LossModel;
/// use netlab::{DropFilter, Dropper, Namespace};
/// let (a, b) = (Namespace::create("a")?, Namespace::create("b")?);
/// a.add_veth("eth0", &b, "eth0", 1500)?;
/// let data = DropFilter { multicast_only: true, length_min: 1000, ..DropFilter::default() };
/// let dropper = Dropper::attach(&b, "eth0", &"uniform:1%".parse::<LossModel>().unwrap(), &data)?;
/// assert_eq!(dropper.counts()?.lost, 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Dropper {
    program: Program,
    place: String,
}

impl Dropper {
    /// Begins to lose packets that arrive at `interface`.
    ///
    /// # Errors
    /// When there is no such interface, the model is a recorded trace, or the kernel refuses the program.
    pub fn attach(
        namespace: &Namespace,
        interface: &str,
        model: &LossModel,
        filter: &DropFilter,
    ) -> Result<Self, LabError> {
        Self::attach_telling(namespace, interface, model, filter, None)
    }

    /// As [`Dropper::attach`], and tells which packets were lost, if they have this mark in the first 160 bytes behind their
    /// UDP header.
    ///
    /// # Errors
    /// As [`Dropper::attach`].
    pub fn attach_telling(
        namespace: &Namespace,
        interface: &str,
        model: &LossModel,
        filter: &DropFilter,
        mark: Option<[u8; 8]>,
    ) -> Result<Self, LabError> {
        let place = format!("{interface} in {:?}", namespace.label());
        let model = model_of(model)?;
        let program = namespace
            .run(|| Program::attach(interface, model, filter, mark, Attach::Auto))
            .map_err(|e| LabError::system(format!("cannot lose packets at {place}"), e))?;
        Ok(Self { program, place })
    }

    /// Goes on with another model; a burst that has begun is finished first.
    ///
    /// # Errors
    /// When the model is a recorded trace.
    pub fn set_model(&mut self, model: &LossModel) -> Result<(), LabError> {
        let model = model_of(model)?;
        self.program
            .set_model(model)
            .map_err(|e| LabError::system(format!("cannot change the loss at {}", self.place), e))
    }

    /// What was seen and lost so far, of the filter's packets.
    ///
    /// # Errors
    /// When the kernel does not give its counters.
    pub fn counts(&self) -> Result<DropCounts, LabError> {
        self.program
            .counts()
            .map_err(|e| LabError::system(format!("cannot read the losses at {}", self.place), e))
    }

    /// The next of the lost packets that had the mark, in the order of loss.
    pub fn next_lost(&mut self) -> Option<LostPacket> {
        self.program.next_lost()
    }
}

fn model_of(model: &LossModel) -> Result<DropModel, LabError> {
    match model {
        LossModel::None => Ok(DropModel::NONE),
        LossModel::Uniform(rate) => Ok(DropModel::Chain { lost: *rate, lost_again: *rate }),
        LossModel::Bursty { rate, burst } => {
            Ok(DropModel::Bursts { start: start_share(*rate, f64::from(*burst)).min(1.0), burst: *burst })
        }
        LossModel::Markov { rate, mean_burst } => Ok(DropModel::Chain {
            lost: start_share(*rate, *mean_burst).min(1.0),
            lost_again: 1.0 - 1.0 / mean_burst,
        }),
        LossModel::Trace(trace) => Err(LabError::Invalid(format!(
            "expected none, uniform, bursty or markov loss at an interface, got a trace ({})",
            trace.path().display()
        ))),
    }
}
