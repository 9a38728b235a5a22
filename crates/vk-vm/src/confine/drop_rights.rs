use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Gives up every capability for good: those held, and those an exec could give.
pub(super) fn drop_rights() -> io::Result<()> {
    clear_ambient_capability_set()?;
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1_u64 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The first number the kernel does not know: there are no more.
            Err(Errno::INVAL) => break,
            // An ordinary user's process without a namespace of its own has no right to change the
            // set; no_new_privs below then keeps an exec from giving anything.
            Err(Errno::PERM) => break,
            Err(e) => return Err(e.into()),
        }
    }
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}
