//! Property: when all is over and 2·MSL have passed, nothing is left: no flow, no slot, no half-open entry, no TIME_WAIT
//! record, no buffer. (A port in use is a flow, and nothing else.)

use laneway_stack::tables::Tables;

/// What a lane still holds; `None` if nothing.
pub fn left(tables: &Tables) -> Option<String> {
    let held = (tables.flows.len(), tables.slots.len(), tables.half_open.len(), tables.time_waits, tables.pool.lent());
    (held != (0, 0, 0, 0, 0)).then(|| {
        format!(
            "{} flows, {} slots, {} half-open, {} TIME_WAIT records, {} bytes of buffers are left",
            held.0, held.1, held.2, held.3, held.4
        )
    })
}
