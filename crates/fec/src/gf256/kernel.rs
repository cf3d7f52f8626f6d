//! One implementation of the operations, as function pointers.

/// One implementation of the operations; all of them give the same bytes.
#[derive(Debug)]
#[allow(clippy::type_complexity, reason = "the operations as they are called")]
pub struct Kernel {
    pub(super) name: &'static str,
    pub(super) present: fn() -> bool,
    pub(super) xor_into: unsafe fn(&mut [u8], &[u8]),
    pub(super) xor_many: unsafe fn(&mut [u8], &[&[u8]]),
    pub(super) mul_add: unsafe fn(&mut [u8], u8, &[u8]),
    pub(super) mul_add_many: unsafe fn(&mut [u8], &[(u8, &[u8])]),
    pub(super) mul_add_rows: unsafe fn(&mut [&mut [u8]], &[(&[u8], &[u8])]),
    pub(super) mul_add_each: unsafe fn(&mut [(u8, &mut [u8])], &[u8]),
    pub(super) mul: unsafe fn(&mut [u8], u8),
    pub(super) count: unsafe fn(&[u8]) -> usize,
}

// SAFETY, for all calls through the pointers below: the functions are unsafe only in that the processor must
// have their instructions, and that sources are no longer than sums. `Kernel::available` and `Kernel::best`
// return no other kernels, and the methods assert the lengths.
impl Kernel {
    /// Name of the instructions used.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether a product is one instruction, so that skipping products costs more than computing all.
    pub(crate) fn has_products(&self) -> bool {
        self.name.starts_with("GFNI")
    }

    /// See [`xor_into`](super::xor_into).
    #[inline]
    pub fn xor_into(&self, acc: &mut [u8], src: &[u8]) {
        assert!(src.len() <= acc.len(), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.xor_into)(acc, src) }
    }

    /// See [`xor_many`](super::xor_many).
    #[inline]
    pub fn xor_many(&self, acc: &mut [u8], sources: &[&[u8]]) {
        assert!(sources.iter().all(|source| source.len() <= acc.len()), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.xor_many)(acc, sources) }
    }

    /// See [`mul_add`](super::mul_add).
    #[inline]
    pub fn mul_add(&self, acc: &mut [u8], c: u8, src: &[u8]) {
        assert!(src.len() <= acc.len(), "source longer than sum");
        match c {
            0 => {}
            // SAFETY: see above.
            1 => unsafe { (self.xor_into)(acc, src) },
            // SAFETY: see above.
            _ => unsafe { (self.mul_add)(acc, c, src) },
        }
    }

    /// See [`mul_add_many`](super::mul_add_many).
    #[inline]
    pub fn mul_add_many(&self, acc: &mut [u8], terms: &[(u8, &[u8])]) {
        assert!(terms.iter().all(|(_, src)| src.len() <= acc.len()), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.mul_add_many)(acc, terms) }
    }

    /// See [`mul_add_rows`](super::mul_add_rows).
    #[inline]
    pub fn mul_add_rows(&self, sums: &mut [&mut [u8]], terms: &[(&[u8], &[u8])]) {
        assert!(terms.iter().all(|(c, _)| c.len() == sums.len()), "expected one coefficient for each sum");
        let shortest = sums.iter().map(|sum| sum.len()).min().unwrap_or(usize::MAX);
        assert!(terms.iter().all(|(_, src)| src.len() <= shortest), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.mul_add_rows)(sums, terms) }
    }

    /// See [`mul_add_each`](super::mul_add_each).
    #[inline]
    pub fn mul_add_each(&self, sums: &mut [(u8, &mut [u8])], src: &[u8]) {
        assert!(sums.iter().all(|(_, sum)| src.len() <= sum.len()), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.mul_add_each)(sums, src) }
    }

    /// See [`mul`](super::mul).
    #[inline]
    pub fn mul(&self, acc: &mut [u8], c: u8) {
        match c {
            0 => acc.fill(0),
            1 => {}
            // SAFETY: see above.
            _ => unsafe { (self.mul)(acc, c) },
        }
    }

    /// See [`count`](super::count).
    #[inline]
    pub fn count(&self, bytes: &[u8]) -> usize {
        // SAFETY: see above.
        unsafe { (self.count)(bytes) }
    }
}
