//! Loses packets as they arrive at an interface, by a loss model: a program in the kernel (`bpf/drop.c`).
//!
//! Injects faults in tests and measurements of networks without an emulated link, such as multicast on a
//! [`crate::BridgeLan`]. It neither delays nor copies packets.

mod program;

use loss::{LossModel, start_share};
use netio::bpf::Attach;

pub use self::program::{DropCounts, DropFilter, LostPacket, REPORT_LEN};
use self::program::{DropModel, Program};
use crate::error::LabError;
use crate::namespace::Namespace;

/// A dropper at one interface. It ends when this is dropped, and with the process.
///
/// Each dropper has its own state and counters. Packets are lost before anything else on the interface sees
/// them, as if on the wire.
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
    /// Starts to lose packets that arrive at `interface`.
    ///
    /// # Errors
    /// If there is no such interface, the model is a recorded trace, or the kernel refuses the program.
    pub fn attach(
        namespace: &Namespace,
        interface: &str,
        model: &LossModel,
        filter: &DropFilter,
    ) -> Result<Self, LabError> {
        Self::attach_reporting(namespace, interface, model, filter, None)
    }

    /// Like [`Dropper::attach`], and also reports the lost packets that have this mark in the first 160 bytes
    /// of their UDP payload.
    ///
    /// # Errors
    /// As [`Dropper::attach`].
    pub fn attach_reporting(
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

    /// Sets another model; a burst that has begun is finished first.
    ///
    /// # Errors
    /// If the model is a recorded trace.
    pub fn set_model(&mut self, model: &LossModel) -> Result<(), LabError> {
        let model = model_of(model)?;
        self.program
            .set_model(model)
            .map_err(|e| LabError::system(format!("cannot change the loss at {}", self.place), e))
    }

    /// Returns the counters of the packets that match the filter.
    ///
    /// # Errors
    /// If the kernel does not return its counters.
    pub fn counts(&self) -> Result<DropCounts, LabError> {
        self.program
            .counts()
            .map_err(|e| LabError::system(format!("cannot read the losses at {}", self.place), e))
    }

    /// Returns the next lost packet that had the mark, in the order of loss.
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
        // Gilbert's model: the bad state loses all, the good one nothing.
        LossModel::GilbertElliott { worsen, improve, lost_bad: 1.0, lost_good: 0.0 } => {
            Ok(DropModel::Chain { lost: *worsen, lost_again: 1.0 - improve })
        }
        LossModel::GilbertElliott { .. } => Err(LabError::Invalid(format!(
            "expected a gemodel with 1-H = 1 and 1-K = 0 at an interface, saw {model}; use an emulated link"
        ))),
        LossModel::Trace(trace) => Err(LabError::Invalid(format!(
            "expected none, uniform, bursty, markov or gemodel loss at an interface, saw a trace ({})",
            trace.path().display()
        ))),
    }
}
