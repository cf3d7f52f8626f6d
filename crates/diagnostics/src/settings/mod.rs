//! Reading a TOML file by a table of its keys.
//!
//! [`settings!`](crate::settings!) declares a section: each key is one entry, with its type, the form of its
//! values, its default, an example, and its documentation. From the entries it makes
//!
//! - the section as a struct, with one field for each key;
//! - its draft, in which each value is a [`Setting`] with its place, or `None` where the file is wrong;
//! - the functions of [`Section`]: reading, finishing, checking, describing.
//!
//! A [`Document`] is read section by section. Mistakes go into [`Findings`](crate::Findings), so that one
//! pass reports all of them.
//!
//! ```
//! use diagnostics::{Findings, settings};
//! use diagnostics::settings::{Boolean, Document, Fallback, Integer, Layout, Section, parse};
//!
//! settings! {
//!     /// The FEC scheme.
//!     #[derive(Debug)]
//!     pub struct Code(CodeDraft): "code" as "[code]" {
//!         /// Source packets in a repair.
//!         r: u8 { form: Integer::new(1, 64), default: Fallback::Toml("8"), example: "r = 8" }
//!         /// Whether repairs wait for later packets.
//!         delayed: bool { form: Boolean, default: Fallback::Toml("true"), example: "delayed = true" }
//!     }
//! }
//!
//! let text = "[code]\nr = 65\ndelay = true\n";
//! let (layout, mut findings) = (Layout::default().with::<Code>(), Findings::default());
//! let table = parse(text, &mut findings).unwrap();
//! let mut document = Document::new(&table, &layout, &mut findings);
//! let draft = document.section::<Code>();
//! document.finish();
//! assert!(draft.r.is_none() && draft.delayed.unwrap().value);
//! assert_eq!(findings.errors(), 2);
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `fault.rs` | [`Fault`]: why a value is wrong |
//! | `form.rs` | [`Form`]: the values a key may have, and how they are parsed |
//! | `interface.rs` | [`interface_name`]: a form that both products have |
//! | `setting.rs` | [`Setting`]: a value with its place |
//! | `key.rs` | [`Key`], [`KeyInfo`]: an entry of the table |
//! | `table.rs` | [`Table`]: a section of the file under reading |
//! | `section.rs` | [`Section`] and the macro that implements it |
//! | `document.rs` | [`Document`], [`Layout`]: the whole file |

mod document;
mod fault;
mod form;
mod interface;
mod key;
mod section;
mod setting;
mod table;
#[cfg(test)]
mod tests;

pub use document::{Document, Layout, Root, parse};
pub use fault::{Fault, Faults};
pub use form::{Boolean, Choice, Form, Integer, Integers, List, Millis, Optional, Placed, Text, Value};
pub use interface::{interface_name, interface_name_or_empty};
pub use key::{Fallback, Key, KeyInfo, Only, word};
pub use section::{Draft, Section};
pub use setting::Setting;
pub use table::Table;
