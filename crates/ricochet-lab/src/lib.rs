//! Ricochet nodes by the hundred in virtual time.
#![forbid(unsafe_code)]
