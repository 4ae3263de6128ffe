//! What bytes a history may have read: those that the batches that succeeded write one after the
//! other.

use crate::{
    Counts,
    program::{Act, BUFFERS, Batch, Policy, Program},
    run::{End, Event, LEN, Outcome},
};

#[derive(Clone, Default)]
struct Cells {
    /// What they hold, unless a command ended half way.
    value: Option<[u32; LEN]>,
    /// The event that was to write them and failed, if nobody has said since that this is known.
    failed: Option<(usize, usize)>,
}

pub(crate) fn judge(
    program: &Program,
    history: &[Event],
    counts: &mut Counts,
) -> Result<(), String> {
    if !program.hasty && program.acts.iter().all(never_panics) {
        let is_bad = |event: &&Event| match event {
            Event::Batch(_, outcome) => !matches!(outcome.end, End::Reached { retries: 0 }),
            _ => false,
        };
        if let Some(failed) = history.iter().find(is_bad) {
            return Err(format!("nothing panicked, and yet {failed:?}"));
        }
        counts.healthy += 1;
    }
    let mut buffers = vec![Cells { value: Some([0; LEN]), failed: None }; BUFFERS];
    // Streams that may have been reopened by a recovery, at any time from then on.
    let mut recovers = Vec::new();
    for (at, event) in history.iter().enumerate() {
        match event {
            Event::Batch(act, outcome) => {
                let Act::Submit(batch) = &program.acts[*act] else { continue };
                apply(at, batch, outcome, &mut buffers, &mut recovers)
                    .map_err(|why| format!("act {act}: {why}\nin {history:?}"))?;
            }
            &Event::Reopened(stream) => {
                for cells in &mut buffers {
                    cells.failed = cells.failed.filter(|&(_, failed)| failed != stream);
                }
            }
            Event::Read(buffer, read) => match buffers[*buffer].value {
                Some(value) if value[..] != read[..] => {
                    return Err(format!(
                        "event {at} reads {read:?} in buffer {buffer}, which holds {value:?}\nin \
                         {history:?}"
                    ));
                }
                Some(_) => counts.known += 1,
                None => counts.unknown += 1,
            },
            &Event::Write(buffer, with) => {
                buffers[buffer] = Cells { value: Some([with; LEN]), failed: None };
            }
        }
    }
    Ok(())
}

fn never_panics(act: &Act) -> bool {
    match act {
        Act::Submit(batch) => batch.works.iter().all(|work| work.panics == 0),
        _ => true,
    }
}

fn apply(
    at: usize,
    batch: &Batch,
    outcome: &Outcome,
    buffers: &mut [Cells],
    recovers: &mut Vec<usize>,
) -> Result<(), String> {
    let stream = batch.stream;
    if batch.policy != Policy::Error {
        recovers.push(stream);
    }
    match outcome.end {
        End::Undone => Ok(()),
        End::Failed => {
            for (work, &began) in batch.works.iter().zip(&outcome.began) {
                let cells = &mut buffers[work.to];
                // What never began may be hidden by the recovery of what it came after.
                if began > 0 {
                    cells.value = None;
                    // What recovers may have opened its stream again, for all to see.
                    cells.failed = (!recovers.contains(&stream)).then_some((at, stream));
                }
            }
            Ok(())
        }
        End::Reached { .. } => {
            for (work, &began) in batch.works.iter().zip(&outcome.began) {
                if began <= work.panics && work.panics > 0 {
                    return Err(format!("it succeeded, and its last run panicked: {work:?}"));
                }
                let reads = work.from.into_iter().chain(work.adds.then_some(work.to));
                let mut known = true;
                for read in reads {
                    if let Some((failed, _)) = buffers[read].failed {
                        return Err(format!("it succeeded on what event {failed} did not write"));
                    }
                    known &= buffers[read].value.is_some();
                }
                let before = buffers[work.to].value.unwrap_or_default();
                let from = work.from.and_then(|from| buffers[from].value).unwrap_or_default();
                let result = std::array::from_fn(|at| work.result(before[at], from[at]));
                buffers[work.to] = Cells { value: known.then_some(result), failed: None };
            }
            Ok(())
        }
    }
}
