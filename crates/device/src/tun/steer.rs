//! Owns what is asked of the kernel when an interface is opened: to choose queues by our hash, and to keep strangers apart.

use super::{TunConfig, TunError, attach};
use crate::steering_ebpf::{self, Peers, Steering, SteeringError};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// What it has agreed to.
#[derive(Default)]
pub(super) struct Steered {
    pub(super) program: Option<Steering>,
    /// Who is no stranger, and the second queue of each queue; nobody, and none, if strangers are not kept apart.
    pub(super) peers: Option<Peers>,
    pub(super) apart: Vec<File>,
    /// What was asked for and could not be had.
    pub(super) notes: Vec<String>,
}

/// Asks it for the interface `name`, of which `control` is a queue.
pub(super) fn steer(control: &File, name: &str, config: &TunConfig, multi_queue: bool) -> Result<Steered, TunError> {
    let mut steered = Steered::default();
    if config.steering.is_some() && multi_queue {
        let mut failed = None;
        if config.wants_strangers_apart() {
            match apart(control, name, config) {
                Ok(all) => return Ok(all),
                Err(error) => {
                    steered.notes.push(format!("{error}; a flood of SYNs waits in one queue with everything else"));
                    failed = Some(error);
                }
            }
        }
        if config.queues > 1 {
            match program(name, config, None).and_then(|program| program.attach(control.as_fd()).map(|()| program)) {
                Ok(program) => {
                    steered.program = Some(program);
                    return Ok(steered);
                }
                Err(error) => {
                    // Of two sentences about one lack the second is enough.
                    steered.notes.retain(|_| {
                        failed.as_ref().is_none_or(|failed: &SteeringError| failed.to_string() != error.to_string())
                    });
                    steered.notes.push(format!(
                        "{error}; the kernel chooses the queues of {name} by its own flow table, and frames that land on the wrong lane are passed on"
                    ));
                }
            }
        }
    }
    // An interface that outlived another program may have its rule. What refuses this has none.
    match steering_ebpf::detach(control.as_fd()) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EPERM | libc::EINVAL)) => {
            Err(TunError::Attach { name: name.into(), error })
        }
        _ => Ok(steered),
    }
}

fn program(name: &str, config: &TunConfig, apart: Option<&Peers>) -> Result<Steering, SteeringError> {
    let wanted = config.steering.as_ref().expect("asked for");
    let apart = apart.map(|peers| (peers, config.queues));
    let mut program = Steering::load(&wanted.key, config.medium, &wanted.table, apart)?;
    program.interface = Some(name.into());
    Ok(program)
}

fn apart(control: &File, name: &str, config: &TunConfig) -> Result<Steered, SteeringError> {
    let peers = Peers::new()?;
    let program = program(name, config, Some(&peers))?;
    // The queues first, which the program counts on. The kernel numbers them as they come.
    let mut apart = Vec::new();
    let done = (0..config.queues).try_for_each(|_| {
        let file = attach(&mut name.to_string(), config, true).map_err(|error| match error {
            TunError::Attach { error, .. } | TunError::Node(error) => SteeringError::Attach(error),
            other => SteeringError::Attach(io::Error::other(other)),
        });
        file.map(|file| apart.push(file))
    });
    match done.and_then(|()| program.attach(control.as_fd())) {
        Ok(()) => Ok(Steered { program: Some(program), peers: Some(peers), apart, notes: Vec::new() }),
        Err(error) => {
            // From the last on, or the kernel gives the number of one that goes to one that stays.
            while apart.pop().is_some() {}
            Err(error)
        }
    }
}
