//! Loss models, link emulation and namespace topologies for tests, demos and figures.
