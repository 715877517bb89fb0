//! busy_map.
