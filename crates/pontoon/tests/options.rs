//! What a world cannot be opened with.

use pontoon::{
    World,
    job::Env,
    world::{Options, WorldError},
};

/// At once, and without the memory that it would take.
#[test]
fn more_counters_than_memory_has_room_for_are_refused() {
    let env = Env::alone().expect("random bytes");
    for asked in [65_537, u32::MAX] {
        let refused = World::open_in(&env, Options::default().with_slots(asked)).map(drop);
        let error = refused.expect_err("too many");
        assert!(matches!(error, WorldError::TooManySlots { most: 65_536, .. }), "{error}");
        assert!(error.is_bad_input() && error.to_string().contains(&asked.to_string()), "{error}");
    }
}
