//! Taps and TUN devices notice that their interface is gone, even if another takes its name.

use crate::lab::pair::{Pair, config};
use netio::interface::Interface;
use netio::tap::Tap;
use netio::tun::{Tun, TunOptions};
use netlab::Namespace;

fn index_of(host: &Namespace, name: &str) -> Option<u32> {
    host.run(|| Interface::index_of(name).unwrap())
}

#[test]
fn a_tap_does_not_outlive_its_interface() {
    let Some(pair) = Pair::build("taps of deleted interfaces") else { return };
    let mut taps: Vec<Tap> = pair.taps(|_| {}).collect();
    let before = index_of(&pair.a, "eth0");
    assert!(before.is_some() && taps.iter().all(Tap::is_alive));
    pair.a.set_down("eth0").unwrap();
    assert!(taps.iter().all(Tap::is_alive), "an interface that is down may come up again");
    pair.a.delete_interface("eth0").unwrap();
    assert_eq!(index_of(&pair.a, "eth0"), None);
    assert!(!taps.iter().any(Tap::is_alive));
    pair.lay_cable();
    assert!(index_of(&pair.a, "eth0").is_some_and(|after| Some(after) != before));
    assert!(!taps.iter().any(Tap::is_alive), "another interface has the name");
    for tap in &mut taps {
        // the tap stays silent and reports no error
        tap.drain(10, |_| {}).unwrap();
        assert_eq!(tap.dropped(), 0);
    }
    let again = pair.a.run(|| Tap::open(&config()).unwrap());
    assert!(again.is_alive());
}

#[test]
fn a_tun_device_notices_that_it_was_deleted() {
    if !netlab::privilege::namespaces_or_skip("deleted TUN devices") {
        return;
    }
    let host = Namespace::create("host").unwrap();
    let open = || host.run(|| Tun::open("tun0", &TunOptions { up: true, ..TunOptions::default() }).unwrap());
    let first = open();
    assert!(first.is_alive());
    first.interface().set_up(false).unwrap();
    assert!(first.is_alive(), "an interface that is down may come up again");
    host.delete_interface("tun0").unwrap();
    assert!(!first.is_alive());
    let second = open();
    assert!(!first.is_alive() && second.is_alive());
}
