//! Names of network interfaces.

use super::fault::Fault;
use super::form::Text;
use crate::text::quoted;

/// Longest name of an interface in Linux: `IFNAMSIZ` is 16 with its closing zero.
const BYTES_MAX: usize = 15;

/// The name of a network interface, by the rules of Linux.
pub fn interface_name() -> Text<String> {
    Text::new(expected(), parse)
}

/// The same, or an empty text for an interface that is named elsewhere.
pub fn interface_name_or_empty() -> Text<String> {
    Text::new(expected(), |text| if text.is_empty() { Ok(String::new()) } else { parse(text) })
}

fn expected() -> String {
    format!("the name of a network interface, 1 to {BYTES_MAX} characters without blank, `/` or `:`")
}

fn parse(text: &str) -> Result<String, Fault> {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    if text.is_empty() || text.len() > BYTES_MAX || text.contains(is_wrong) || text == "." || text == ".." {
        let fault = Fault::bad("is not the name of an interface").seen(quoted(text));
        return Err(fault.help("`ip -br link` lists the interfaces of this machine"));
    }
    Ok(text.to_owned())
}
