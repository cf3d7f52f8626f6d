//! Whether an interface is wireless, as `/sys` tells.

use std::fs;
use std::path::Path;

/// Directory with an entry for each interface of the network namespace in which `/sys` was mounted.
pub(super) const INTERFACES: &str = "/sys/class/net";
/// Maximum number of interfaces looked at below one.
const BELOW_MAX: usize = 64;

/// Returns the wireless interface that carries the packets of an interface: itself, or one below it, such as
/// a port of a bridge or the parent of a VLAN. `None` if there is none, or if the entry of that name is not
/// the interface with this index.
pub(super) fn wireless_of(interfaces: &Path, name: &str, index: u32) -> Option<String> {
    let text = fs::read_to_string(interfaces.join(name).join("ifindex")).ok()?;
    if text.trim().parse() != Ok(index) {
        // `/sys` shows another network namespace.
        return None;
    }
    let mut waiting = vec![name.to_owned()];
    for looked in 0.. {
        let name = waiting.get(looked)?.clone();
        let entry = interfaces.join(&name);
        // The kernel has the first with the older wireless extensions alone, the second with cfg80211.
        if entry.join("wireless").exists() || entry.join("phy80211").exists() {
            return Some(name);
        }
        let below = fs::read_dir(&entry)
            .into_iter()
            .flatten()
            .filter_map(|one| one.ok()?.file_name().into_string().ok());
        let below = below.filter_map(|one| one.strip_prefix("lower_").map(str::to_owned));
        waiting.extend(below.take(BELOW_MAX.saturating_sub(waiting.len())));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A directory like `/sys/class/net`, which is removed at the end.
    struct Interfaces(PathBuf);

    impl Interfaces {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("undrop-wireless-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn add(&self, name: &str, index: u32, entries: &[&str]) {
            for entry in entries {
                fs::create_dir_all(self.0.join(name).join(entry)).unwrap();
            }
            fs::create_dir_all(self.0.join(name)).unwrap();
            fs::write(self.0.join(name).join("ifindex"), format!("{index}\n")).unwrap();
        }
    }

    impl Drop for Interfaces {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_interface_is_wireless_if_it_or_one_below_it_is() {
        let all = Interfaces::new();
        all.add("eth0", 2, &["statistics"]);
        all.add("wlan0", 3, &["wireless", "phy80211"]);
        all.add("wlp2s0", 4, &["phy80211", "upper_br0"]);
        all.add("br0", 5, &["lower_eth0", "lower_wlp2s0", "brif"]);
        all.add("br0.7", 6, &["lower_br0"]);
        all.add("ring", 7, &["lower_ring"]);
        let wireless = |name, index| wireless_of(&all.0, name, index);
        assert_eq!(wireless("eth0", 2), None);
        assert_eq!(wireless("wlan0", 3).as_deref(), Some("wlan0"));
        assert_eq!(
            wireless("br0.7", 6).as_deref(),
            Some("wlp2s0"),
            "a VLAN of a bridge with a wireless port"
        );
        assert_eq!(wireless("wlan0", 9), None, "the interface of that name of another namespace");
        assert_eq!(wireless("none", 1), None);
        assert_eq!(wireless("ring", 7), None, "the search ends");
    }
}
