//! Whatever is read as a greeting, or as a question for the names of groups.
#![no_main]
#![allow(dead_code, reason = "the target reads, and writes only greetings")]

#[path = "../../crates/ricochet/src/greetings/wire.rs"]
mod greetings;
#[path = "../../crates/ricochet/src/patterns/wire.rs"]
mod names;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(greeting) = greetings::Greeting::read(data) {
        let mut written = [0; greetings::GREETING_MAX];
        let length = greeting.write(&mut written);
        assert_eq!(written[..length], *data);
    }
    if let Ok(names::NamesDatagram::Answer(answer)) = names::NamesDatagram::read(data) {
        assert!(answer.names().count() <= data.len());
    }
});
