//! Who is in which group, and at which address.
#![forbid(unsafe_code)]
