//! Ricochet for Python: the classes of `undrop.multicast`, a thin layer over the library `ricochet`.
//!
//! Methods that wait let other Python threads run, and check for signals ten times a second. The support for
//! `async` is written in Python, in `python/undrop/multicast/_events.py`.

mod buffer;
mod error;
mod message;
mod node;
mod received;
mod subscription;

use pyo3::prelude::*;

#[pymodule]
fn _ricochet(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<node::Node>()?;
    module.add_class::<node::Sender>()?;
    module.add_class::<subscription::Subscription>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<received::Lost>()?;
    module.add_class::<received::History>()?;
    module.add_class::<received::MemberNews>()?;
    module.add_class::<received::GroupNews>()?;
    module.add_class::<received::OrderChange>()?;
    module.add_class::<received::RegistryNews>()?;
    module.add("RicochetError", module.py().get_type::<error::RicochetError>())?;
    module.add("Closed", module.py().get_type::<error::Closed>())?;
    module.add("LossWarning", module.py().get_type::<error::LossWarning>())?;
    module.add_function(wrap_pyfunction!(node::generate_key, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
