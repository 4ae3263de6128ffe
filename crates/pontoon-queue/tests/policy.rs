//! What becomes of batches that fail, and who is told: over CPU devices whose kernels panic.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pontoon_cpu::{CpuDevice, CpuSpec, Kernel};
use pontoon_hal::{Engine, Memory};
use pontoon_queue::{
    Barrier, Batch, Buffer, Edges, FenceError, FullSync, HostError, Kind, Malformed, Obstacle,
    OnFailure, Patience, QueueSpec, Recovery, Refusal, Root, Session, StreamId, WaitFailure,
};
use pontoon_signal::{
    Bound, Rank, Reason, Seq, WaitError,
    shim::{AtomicU32, Ordering::Relaxed},
};

type Region = pontoon_cpu::Region;

fn device(rank: u32) -> CpuDevice {
    let start = Seq::new(u64::MAX - 2);
    CpuDevice::open(Rank(rank), CpuSpec { start, ..CpuSpec::default() }).unwrap()
}

/// Catches a hang; no healthy wait comes near it.
fn patience() -> Patience {
    Patience::within(Duration::from_secs(30))
}

fn bound() -> Bound {
    Bound::within(Duration::from_secs(30))
}

fn compute<'d>(session: &mut Session<'d, CpuDevice>, on: &'d CpuDevice, label: &str) -> StreamId {
    session.stream(on, Engine::Compute, label).unwrap()
}

fn numbers(on: &CpuDevice, len: usize) -> Buffer<Region, u32> {
    Buffer::allocate(on, len).unwrap()
}

/// Writes argument 0 to the first half of access 0, panics the first `times` times, and writes the
/// rest.
fn fill(times: u32) -> Kernel {
    let left = AtomicU32::new(times);
    Kernel::new(move |kernel| {
        let with = kernel.argument(0) as u32;
        let to = kernel.write::<u32>(0);
        let half = to.len() / 2;
        to[..half].fill(with);
        if left.load(Relaxed) > 0 {
            left.fetch_sub(1, Relaxed);
            panic!("half way");
        }
        to[half..].fill(with);
    })
}

fn add() -> Kernel {
    Kernel::new(|kernel| {
        let by = kernel.argument(0) as u32;
        kernel.write::<u32>(0).iter_mut().for_each(|x| *x = x.wrapping_add(by));
    })
}

/// Holds kernels until it is opened, or dropped: a test that fails must not hang.
struct Gate(Arc<AtomicU32>);

impl Gate {
    fn shut() -> Self {
        Self(Arc::new(AtomicU32::new(0)))
    }

    fn open(&self) {
        self.0.store(1, Relaxed);
    }

    /// A kernel that waits for the gate.
    fn held(&self) -> Kernel {
        let gate = Arc::clone(&self.0);
        Kernel::new(move |_| {
            while gate.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
        })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

fn filling(
    session: &mut Session<'_, CpuDevice>,
    kernel: &Kernel,
    buffer: &Buffer<Region, u32>,
    policy: OnFailure<Region>,
) -> Batch<CpuDevice> {
    let mut batch = session.batch();
    batch.launch("fill", kernel, [buffer.write(..)], [7]).on_failure(policy).idempotent();
    batch
}

fn submit(
    session: &mut Session<'_, CpuDevice>,
    stream: StreamId,
    batch: Batch<CpuDevice>,
) -> pontoon_queue::Fence {
    session.submit(stream, batch.seal().unwrap()).unwrap()
}

fn error_of(failure: WaitFailure) -> FenceError {
    match failure {
        WaitFailure::Fence(error) => error,
        other => panic!("{other}"),
    }
}

fn sessions<'d>() -> [Session<'d, CpuDevice>; 2] {
    [Session::auto(), Session::check()].map(|session| session.with_patience(patience()))
}

#[test]
fn a_retry_reaches_a_new_fence_and_the_right_bytes() {
    let device = device(0);
    for mut session in sessions() {
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        let batch = filling(&mut session, &fill(2), &buffer, OnFailure::Retry(3));
        let first = submit(&mut session, stream, batch);
        let done = session.wait(&first, patience()).unwrap();
        assert_eq!(done.retries, 2);
        assert_ne!(done.fence.target(), None);
        assert_eq!((done.fence.is_complete(), first.is_complete().is_err()), (Ok(true), true));
        assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
        // Asked again it says the same, and others can wait for either.
        assert_eq!(session.wait(&first, patience()).unwrap().retries, 2);
        let other = compute(&mut session, &device, "b");
        session.stream_wait(other, &first).unwrap();
        session.launch(other, "add", &add(), [buffer.write(..)], [1]).unwrap();
        session.launch(stream, "add", &add(), [numbers(&device, 1).write(..)], [1]).unwrap();
        session.drain(other, patience()).unwrap();
        assert_eq!(session.to_vec(&buffer).unwrap(), [8; 8]);
        assert_eq!(session.counts().retries, 2);
        assert!(
            session.describe(&first).contains("retried 2 times"),
            "{}",
            session.describe(&first)
        );
    }
}

#[test]
fn retries_end_and_the_error_names_the_root_and_their_number() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let batch = filling(&mut session, &fill(100), &buffer, OnFailure::Retry(2));
    let fence = submit(&mut session, stream, batch);
    for _ in 0..2 {
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert_eq!(error.recovery.as_deref(), Some(&Recovery::Retried { times: 2 }));
        for part in ["device 0 queue a: fill", "half way", "submitted again 2 times"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
    let refused = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(refused, Refusal::Faulted(_)), "{refused}");
    session.reopen(stream).unwrap();
    session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap()[..4], [8; 4]);
}

#[test]
fn what_cannot_fail_as_a_whole_does_not_seal() {
    let device = device(0);
    let mut session = Session::auto();
    let buffer = numbers(&device, 8);
    let kernel = fill(0);
    let mut batch = Batch::<CpuDevice>::new();
    batch.launch("fill", &kernel, [buffer.write(..)], [7]).on_failure(OnFailure::Retry(1));
    let why = "only a batch declared idempotent can be retried";
    assert_eq!(batch.seal().unwrap_err(), Malformed { label: "batch", why, beyond: None });
    let (semaphore, collective) = (session.semaphore("s"), session.collective("c", 2));
    let mut batch = filling(&mut session, &kernel, &buffer, OnFailure::Retry(1));
    batch.signal(semaphore, 1).wait_semaphore(semaphore, 2);
    assert!(batch.seal().unwrap_err().why.contains("after a signal"));
    let mut batch = filling(&mut session, &kernel, &buffer, OnFailure::Rollback(vec![]));
    batch.collective(collective);
    assert!(batch.seal().unwrap_err().why.contains("collective"));
}

#[test]
fn a_rollback_gives_the_bytes_back() {
    let device = device(0);
    for mut session in sessions() {
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        session.write(&buffer, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let kernel = fill(1);
        let region = buffer.memory().id();
        // The middle only: the rest stays as the kernel left it.
        let policy = || OnFailure::Rollback(vec![buffer.write(1..7)]);
        let batch = filling(&mut session, &kernel, &buffer, policy());
        let fence = submit(&mut session, stream, batch);
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert_eq!(error.recovery.as_deref(), Some(&Recovery::RolledBack(vec![(region, 4..28)])));
        let said = format!("bytes 4..28 of {region} hold again what they held before it");
        assert!(
            error.to_string().contains(&said) && error.to_string().contains("half way"),
            "{error}"
        );
        assert_eq!(session.to_vec(&buffer).unwrap(), [7, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(session.counts().rollbacks, 1);
        // The stream goes on.
        let batch = filling(&mut session, &kernel, &buffer, policy());
        let fence = submit(&mut session, stream, batch);
        let _ = session.wait(&fence, patience()).unwrap();
        assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
    }
}

#[test]
fn a_batch_that_did_not_begin_has_nothing_to_give_back() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let gate = Gate::shut();
    session.launch(stream, "held", &gate.held(), [], []).unwrap();
    session.launch(stream, "other", &fill(1), [numbers(&device, 8).write(..)], [1]).unwrap();
    let policy = OnFailure::Rollback(vec![buffer.write(0..8)]);
    let batch = filling(&mut session, &fill(0), &buffer, policy);
    let fence = submit(&mut session, stream, batch);
    let batch = filling(&mut session, &fill(0), &buffer, OnFailure::Retry(5));
    let retried = submit(&mut session, stream, batch);
    gate.open();
    let error = error_of(session.wait(&fence, patience()).unwrap_err());
    assert!(matches!(error.recovery.as_deref(), Some(Recovery::Untouched(_))), "{error}");
    let error = error_of(session.wait(&retried, patience()).unwrap_err());
    assert_eq!((error.recovery, session.counts().retries), (None, 0), "another batch's failure");
    assert_eq!(error.fault.unwrap().command, "other");
}

#[test]
fn who_waits_on_another_stream_names_the_root_and_stays_failed() {
    let devices = [device(0), device(1), device(2)];
    for mut session in sessions() {
        let streams = [0, 1, 2].map(|at| compute(&mut session, &devices[at], ["a", "b", "c"][at]));
        let (x, y) = (numbers(&devices[0], 8), numbers(&devices[1], 8));
        let batch = filling(&mut session, &fill(1), &x, OnFailure::Retry(1));
        let first = submit(&mut session, streams[0], batch);
        let mut follow = |stream, fence, label| {
            session.stream_wait(stream, fence).unwrap();
            let accesses = [y.write(..), x.read(..)];
            session.launch(stream, label, &add(), accesses, [1]).unwrap()
        };
        let second = follow(streams[1], &first, "second");
        let third = follow(streams[2], &second, "third");
        for fence in [&third, &second] {
            let error = error_of(session.wait(fence, patience()).unwrap_err());
            let Some(Root::Fault(root)) = error.root.as_deref() else { panic!("{error}") };
            assert_eq!((root.command, &*root.queue), ("fill", "a"), "{error}");
        }
        // The waits saw the failure, so the batch has run again, over what dead queues would read.
        let done = session.wait(&first, patience()).unwrap();
        assert_eq!(done.retries, 1);
        assert_eq!(session.to_vec(&x).unwrap(), [7; 8]);
        // Who uses what a dead queue should have written still fails, whatever the order.
        let read = session.to_vec(&y).unwrap_err();
        assert!(matches!(read, HostError::Wait(_) | HostError::Refused(_)), "{read}");
        for stream in &streams[1..] {
            session.reopen(*stream).unwrap();
        }
        let refused = session.stream_wait(streams[0], &second).unwrap_err();
        assert!(matches!(refused, Refusal::Failed(_)), "{refused}");
        session.stream_wait(streams[1], &done.fence).unwrap();
        session.launch(streams[1], "second", &add(), [y.write(..), x.read(..)], [1]).unwrap();
        session.drain(streams[1], patience()).unwrap();
        assert_eq!(session.to_vec(&y).unwrap(), [1; 8]);
    }
}

#[test]
fn a_reopened_stream_has_its_edges() {
    let devices = [device(0), device(1)];
    for (at, mut session) in sessions().into_iter().enumerate() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let buffer = numbers(&devices[0], 8);
        let failed = session.launch(first, "fill", &fill(1), [buffer.write(..)], [3]).unwrap();
        assert!(session.wait(&failed, patience()).is_err());
        session.reopen(first).unwrap();
        session.reopen(first).unwrap();
        let edges = session.counts().edges;
        // Over the half that was written before.
        session.launch(second, "add", &add(), [buffer.write(..)], [1]).unwrap();
        assert_eq!(session.counts().edges, edges, "the dead queue's events are over");
        let slow = Kernel::new(|kernel| {
            std::thread::sleep(Duration::from_millis(5));
            kernel.write::<u32>(0).iter_mut().for_each(|x| *x *= 2);
        });
        let given = session.launch(first, "double", &slow, [buffer.write(..)], []);
        if at == 1 {
            assert!(matches!(given, Err(Refusal::Missing(_))), "{given:?}");
            continue;
        }
        given.unwrap();
        session.launch(second, "add", &add(), [buffer.write(..)], [1]).unwrap();
        assert_eq!(session.counts().edges, edges + 2);
        assert_eq!(session.to_vec(&buffer).unwrap(), [9, 9, 9, 9, 3, 3, 3, 3]);
    }
}

#[test]
fn what_a_dead_event_hid_is_over_before_the_stream_goes_on() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
    let slow = Kernel::new(|kernel| {
        let to = kernel.write::<u32>(0);
        std::thread::sleep(Duration::from_millis(100));
        to.iter_mut().for_each(|x| *x += 1);
    });
    session.launch(second, "slow", &slow, [y.write(..)], []).unwrap();
    // Fails before it gets to its wait for the slow one, which its last command hides.
    let mut batch = session.batch();
    batch.launch("fill", &fill(1), [x.write(..)], [7]);
    batch.launch("hides", &add(), [y.write(..)], [10]).idempotent().on_failure(OnFailure::Retry(1));
    let fence = submit(&mut session, first, batch);
    assert_eq!(session.wait(&fence, patience()).unwrap().retries, 1);
    assert_eq!(session.to_vec(&y).unwrap(), [11; 8]);
}

#[test]
fn an_event_that_failed_has_learnt_nothing_from_waits_that_never_ended() {
    let devices = [device(0), device(1)];
    let mut session = Session::check().with_patience(Patience::within(Duration::from_millis(200)));
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
    let gate = Gate::shut();
    let running = session.launch(second, "held", &gate.held(), [y.write(..)], []).unwrap();
    let failed = session.launch(first, "fill", &fill(1), [x.write(..)], [7]).unwrap();
    session.stream_wait(first, &running).unwrap();
    assert!(session.wait(&failed, patience()).is_err());
    // Not while it runs: nothing would order what comes next against it.
    let reopened = session.reopen(first).unwrap_err();
    assert!(reopened.to_string().contains("in held"), "{reopened}");
    gate.open();
    let _ = session.wait(&running, patience()).unwrap();
    session.reopen(first).unwrap();
    session.launch(first, "add", &add(), [y.write(..)], [1]).unwrap();
    session.drain(first, patience()).unwrap();
}

#[test]
fn what_is_parked_follows_a_retry_and_not_a_failure() {
    for retries in [0, 1] {
        let device = device(0);
        let mut session = Session::auto().with_patience(patience());
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        let (semaphore, later) = (session.semaphore("s"), session.semaphore("t"));
        let policy = if retries == 0 { OnFailure::Error } else { OnFailure::Retry(retries) };
        let mut batch = filling(&mut session, &fill(1), &buffer, policy);
        batch.signal(later, 1);
        let failing = submit(&mut session, stream, batch);
        let mut batch = session.batch();
        batch.wait_semaphore(semaphore, 1).launch("add", &add(), [buffer.write(..)], [1]);
        let parked = submit(&mut session, stream, batch);
        session.signal(semaphore, 1).unwrap();
        let outcome = session.wait(&failing, patience()).map(|done| done.retries);
        let followed = session.wait(&parked, patience());
        if retries == 0 {
            assert!(outcome.is_err() && followed.is_err());
            session.reopen(stream).unwrap();
            // Its signal was taken back.
            session.signal(later, 1).unwrap();
            continue;
        }
        // Either it was given to the queue before that failed, or it came after the retry.
        assert_eq!(outcome.unwrap(), 1);
        let expected = 7 + u32::from(followed.is_ok());
        assert_eq!(session.to_vec(&buffer).unwrap(), [expected; 8]);
        let other = compute(&mut session, &device, "b");
        let mut batch = session.batch();
        batch.wait_semaphore(later, 1).launch("add", &add(), [buffer.write(..)], [1]);
        submit(&mut session, other, batch);
        assert_eq!(session.to_vec(&buffer).unwrap(), [expected + 1; 8]);
    }
}

#[test]
fn parked_batches_follow_the_next_attempt() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let [stream, other] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let buffer = numbers(&device, 8);
    let semaphore = session.semaphore("s");
    let batch = filling(&mut session, &fill(1), &buffer, OnFailure::Retry(1));
    let failing = submit(&mut session, stream, batch);
    let mut batch = session.batch();
    batch.wait_semaphore(semaphore, 1).launch("add", &add(), [buffer.write(..)], [1]);
    let parked = submit(&mut session, stream, batch);
    assert!(failing.wait(bound()).is_err());
    // Its turn comes while the queue is dead: it stays.
    let mut batch = session.batch();
    batch.signal(semaphore, 1);
    submit(&mut session, other, batch);
    assert_eq!(parked.is_complete(), Ok(false));
    let _ = session.wait(&parked, patience()).unwrap();
    assert_eq!(session.wait(&failing, patience()).unwrap().retries, 1);
    assert_eq!(session.to_vec(&buffer).unwrap(), [8; 8]);
}

/// What callbacks said, in order.
type Said = Arc<Mutex<Vec<(&'static str, String)>>>;

fn tell(said: &Said, name: &'static str) -> impl FnOnce(Result<(), &FenceError>) + Send + 'static {
    let said = Arc::clone(said);
    move |outcome| {
        let outcome = outcome.map_or_else(ToString::to_string, |()| "ok".to_string());
        said.lock().unwrap().push((name, outcome));
    }
}

fn names(said: &Said) -> Vec<&'static str> {
    said.lock().unwrap().iter().map(|(name, _)| *name).collect()
}

#[test]
fn callbacks_run_once_whatever_happens() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let streams = ["a", "b", "c", "d"].map(|label| compute(&mut session, &device, label));
    let said = Said::default();
    let buffer = || numbers(&device, 8);
    let fine = session.launch(streams[0], "fill", &fill(0), [buffer().write(..)], [1]).unwrap();
    session.on_complete(&fine, tell(&said, "fine"));
    session.on_complete(&fine, |_| panic!("of a callback"));
    let failed = session.launch(streams[1], "fill", &fill(1), [buffer().write(..)], [1]).unwrap();
    session.on_complete(&failed, tell(&said, "failed"));
    let batch = filling(&mut session, &fill(1), &buffer(), OnFailure::Retry(1));
    let retried = submit(&mut session, streams[2], batch);
    session.on_complete(&retried, tell(&said, "retried"));
    let batch = filling(&mut session, &fill(9), &buffer(), OnFailure::Retry(1));
    let exhausted = submit(&mut session, streams[3], batch);
    session.on_complete(&exhausted, tell(&said, "exhausted"));
    for fence in [&fine, &failed, &retried, &exhausted] {
        let _ = session.wait(fence, patience());
    }
    assert_eq!(names(&said).len(), 4, "the waits ran them");
    let late = session.wait(&fine, patience()).unwrap().fence;
    session.on_complete(&late, tell(&said, "late"));
    assert_eq!(names(&said).len(), 4, "never by the call itself");
    session.progress();
    session.progress();
    let mut all = said.lock().unwrap().clone();
    all.sort();
    let [exhausted, failed, fine, late, retried] = &all[..] else { panic!("{all:?}") };
    assert!(exhausted.1.contains("submitted again once"), "{exhausted:?}");
    assert!(failed.1.contains("half way"), "{failed:?}");
    assert_eq!((&*fine.1, &*late.1, &*retried.1), ("ok", "ok", "ok"));
    assert_eq!(session.counts().callback_panics, 1);
}

#[test]
fn progress_alone_gets_a_batch_through() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let said = Said::default();
    let batch = filling(&mut session, &fill(3), &buffer, OnFailure::Retry(3));
    let fence = submit(&mut session, stream, batch);
    session.on_complete(&fence, tell(&said, "done"));
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while names(&said).is_empty() {
        assert!(std::time::Instant::now() < until, "{}", session.pending());
        session.progress();
        std::thread::yield_now();
    }
    assert_eq!(*said.lock().unwrap(), [("done", "ok".to_string())]);
    assert_eq!(session.counts().retries, 3);
}

#[test]
fn a_dropped_session_fails_what_is_parked_and_leaves_the_rest() {
    let device = device(0);
    let mut session = Session::auto();
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let said = Said::default();
    let semaphore = session.semaphore("s");
    let gate = Gate::shut();
    let running = session.launch(first, "held", &gate.held(), [], []).unwrap();
    session.on_complete(&running, tell(&said, "running"));
    session.on_complete(&running, |_| panic!("of a callback"));
    let mut batch = session.batch();
    batch.wait_semaphore(semaphore, 1).launch("parked", &Kernel::new(|_| {}), [], []);
    let parked = submit(&mut session, second, batch);
    session.on_complete(&parked, tell(&said, "parked"));
    drop(session);
    let error = parked.wait(bound()).unwrap_err();
    assert!(error.to_string().contains("its session ended"), "{error}");
    assert_eq!(names(&said), ["running", "parked"]);
    assert!(
        said.lock().unwrap().iter().all(|(_, text)| text.contains("session ended")),
        "{said:?}"
    );
    assert_eq!(running.is_complete(), Ok(false));
    gate.open();
    running.wait(bound()).unwrap();
}

#[test]
fn a_fence_that_nobody_completes_is_named() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let buffer = numbers(&devices[0], 8);
    let (upload, uploaded) = session.completer("upload").unwrap();
    let (other, completed) = session.completer("other").unwrap();
    session.stream_wait(first, &completed).unwrap();
    session.stream_wait(first, &uploaded).unwrap();
    session.launch(first, "add", &add(), [buffer.write(..)], [1]).unwrap();
    let follows = session.launch(second, "add", &add(), [buffer.write(..)], [1]).unwrap();
    let leaks = session.leaks().to_string();
    assert!(leaks.contains("upload") && leaks.contains("policy.rs"), "{leaks}");
    assert_eq!(session.pool_report().outstanding, 2);
    let said = session.describe(&uploaded);
    assert!(said.starts_with("fence \"upload\" made at ") && said.contains("ago"), "{said}");
    other.complete(Ok(()));
    drop(upload);
    let error = error_of(session.wait(&follows, patience()).unwrap_err());
    let Some(Root::Completer { label: "upload", location }) = error.root.as_deref() else {
        panic!("{error}")
    };
    assert!(location.file().ends_with("policy.rs") && error.to_string().contains("policy.rs"));
    assert_eq!(session.leaks().count(), 0);
    let (failing, fence) = session.completer("fails").unwrap();
    failing.complete(Err(Reason::small(99)));
    assert!(session.wait(&fence, patience()).unwrap_err().to_string().contains("fails"));
}

#[test]
fn a_fence_tells_where_it_comes_from() {
    let device = device(3);
    let mut session = Session::auto();
    let stream = compute(&mut session, &device, "work");
    let buffer = numbers(&device, 8);
    let line = line!() + 1;
    let fence = session.launch(stream, "fill", &fill(0), [buffer.write(..)], [1]).unwrap();
    let batch = filling(&mut session, &fill(0), &buffer, OnFailure::Error).seal().unwrap();
    let later = session.submit(stream, batch).unwrap();
    let _ = session.wait(&later, patience()).unwrap();
    assert_eq!((fence.stream(), fence.device()), ("work", Rank(3)));
    let site = format!("{}:{line}:", file!());
    let said = session.describe(&fence);
    assert!(said.starts_with("fill (device 3 queue work) at 1, submitted at "), "{said}");
    assert!(said.contains(&site) && said.ends_with(": complete"), "{said} is not of {site}");
    let said = session.describe(&later);
    assert!(said.contains("at 2") && said.contains(&format!(":{}:", line + 2)), "{said}");
}

#[test]
fn a_lost_device_is_not_tried_again() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let gate = Gate::shut();
    let batch = filling(&mut session, &gate.held(), &buffer, OnFailure::Retry(3));
    let retried = submit(&mut session, stream, batch);
    let policy = OnFailure::Rollback(vec![buffer.write(0..8)]);
    let batch = filling(&mut session, &fill(0), &buffer, policy);
    let rolled = submit(&mut session, stream, batch);
    device.kill();
    gate.open();
    let error = error_of(session.wait(&retried, patience()).unwrap_err());
    assert_eq!((error.recovery, session.counts().retries), (None, 0), "{:?}", error.fault);
    let error = error_of(session.wait(&rolled, patience()).unwrap_err());
    let Some(Recovery::NotRolledBack { why: Obstacle::Reopen(_), .. }) = error.recovery.as_deref()
    else {
        panic!("{error}")
    };
    assert!(session.reopen(stream).is_err());
}

#[test]
fn a_wait_that_took_too_long_is_tried_again() {
    let device = device(0);
    let bound = Bound::within(Duration::from_millis(30));
    let mut session = Session::auto().with_patience(patience()).with_bound(bound);
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let (completer, ready) = session.completer("ready").unwrap();
    let mut batch = session.batch();
    batch.wait(&ready).launch("fill", &fill(0), [buffer.write(..)], [7]);
    batch.idempotent().on_failure(OnFailure::Retry(1000));
    let fence = submit(&mut session, stream, batch);
    assert!(fence.wait(Bound::within(Duration::from_secs(30))).is_err());
    completer.complete(Ok(()));
    assert!(session.wait(&fence, patience()).unwrap().retries > 0);
    assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
}

#[test]
fn the_host_and_a_later_submission_meet_the_next_attempt() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let kernel = fill(2);
    let batch = filling(&mut session, &kernel, &buffer, OnFailure::Retry(2));
    submit(&mut session, stream, batch);
    assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
    let kernel = fill(1);
    let batch = filling(&mut session, &kernel, &buffer, OnFailure::Retry(1));
    let fence = submit(&mut session, stream, batch);
    assert!(fence.wait(bound()).is_err());
    session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
    session.drain(stream, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [8; 8]);
    assert_eq!(session.counts().retries, 3);
}

#[test]
fn a_drain_waits_for_the_last_attempt_and_tells_of_what_else_failed() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let buffer = numbers(&device, 8);
    let batch = filling(&mut session, &fill(2), &buffer, OnFailure::Retry(2));
    submit(&mut session, stream, batch);
    session.drain(stream, patience()).unwrap();
    let gate = Gate::shut();
    session.launch(stream, "held", &gate.held(), [], []).unwrap();
    let batch = filling(&mut session, &fill(1), &buffer, OnFailure::Retry(1));
    submit(&mut session, stream, batch);
    session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
    gate.open();
    assert!(session.drain(stream, patience()).is_err(), "the last one will not be done again");
    session.drain(stream, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [7; 8]);
}

#[test]
fn an_event_goes_with_the_next_attempt() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let [stream, other] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let buffer = numbers(&device, 8);
    let (kept, moved) = (session.event("kept"), session.event("moved"));
    let mut batch = filling(&mut session, &fill(1), &buffer, OnFailure::Retry(1));
    batch.record(kept).record(moved);
    let fence = submit(&mut session, stream, batch);
    let (third, elsewhere) = (compute(&mut session, &device, "c"), numbers(&device, 8));
    let mut batch = session.batch();
    batch.launch("add", &add(), [elsewhere.write(..)], [1]).record(moved);
    submit(&mut session, other, batch);
    assert_eq!(session.wait(&fence, patience()).unwrap().retries, 1);
    let mut batch = session.batch();
    batch.wait_event(kept).launch("add", &add(), [buffer.write(..)], [1]);
    submit(&mut session, other, batch);
    // It stands for what was recorded last, not for what ran last.
    let mut batch = session.batch();
    batch.wait_event(moved).launch("add", &add(), [elsewhere.write(..)], [1]);
    submit(&mut session, third, batch);
    session.drain(other, patience()).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [8; 8]);
}

#[test]
fn a_reopened_stream_has_not_learnt_what_it_waited_for_in_vain() {
    let devices = [device(0), device(1)];
    for mut session in sessions() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let buffer = numbers(&devices[0], 8);
        let failed = session.launch(second, "fill", &fill(1), [buffer.write(..)], [7]).unwrap();
        let waits = session.stream_wait(first, &failed).unwrap();
        assert!(session.wait(&waits, patience()).is_err());
        session.reopen(first).unwrap();
        // Nobody said that the other queue's failure is dealt with.
        let given = session.launch(first, "add", &add(), [buffer.write(..)], [1]);
        match given {
            Ok(fence) => assert!(session.wait(&fence, patience()).is_err()),
            Err(refused) => assert!(matches!(refused, Refusal::Missing(_)), "{refused}"),
        }
    }
}

#[test]
fn a_rollback_gives_nothing_back_that_it_has_not_copied() {
    let device = device(0);
    for mut session in sessions() {
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        session.write(&buffer, 0, &[3; 8]).unwrap();
        let (completer, ready) = session.completer("ready").unwrap();
        let mut batch = session.batch();
        batch.wait(&ready).launch("fill", &fill(0), [buffer.write(..)], [7]);
        batch.on_failure(OnFailure::Rollback(vec![buffer.write(0..8)]));
        let fence = submit(&mut session, stream, batch);
        drop(completer);
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert!(matches!(error.recovery.as_deref(), Some(Recovery::Untouched(_))), "{error}");
        assert!(matches!(error.root.as_deref(), Some(Root::Completer { .. })), "{error}");
        assert_eq!(session.to_vec(&buffer).unwrap(), [3; 8]);
        session.launch(stream, "fill", &fill(0), [buffer.write(..)], [7]).unwrap();
    }
}

#[test]
fn a_rollback_waits_for_who_reads_what_it_gives_back() {
    let devices = [device(0), device(1)];
    for mut session in sessions() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
        let gate = Gate::shut();
        session.launch(second, "held", &gate.held(), [y.read(..)], []).unwrap();
        let policy = OnFailure::Rollback(vec![y.write(0..8)]);
        let batch = filling(&mut session, &fill(1), &x, policy);
        let fence = submit(&mut session, first, batch);
        assert!(fence.wait(bound()).is_err());
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            gate.open();
        });
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert!(matches!(error.recovery.as_deref(), Some(Recovery::RolledBack(_))), "{error}");
        later.join().unwrap();
    }
}

#[test]
fn the_memory_of_a_rollback_goes_from_stream_to_stream() {
    let device = device(0);
    let mut session = Session::check().with_patience(patience());
    let streams = ["a", "b"].map(|label| compute(&mut session, &device, label));
    for stream in [streams[0], streams[1], streams[0]] {
        let buffer = numbers(&device, 8);
        let policy = OnFailure::Rollback(vec![buffer.write(0..8)]);
        let batch = filling(&mut session, &fill(0), &buffer, policy);
        let fence = submit(&mut session, stream, batch);
        fence.wait(bound()).unwrap();
        session.progress();
    }
}

#[test]
fn a_hazard_is_not_tried_again() {
    let device = device(0);
    let mut session = Session::new(Edges::Trust).with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (buffer, gate, runs) = (numbers(&device, 8), Gate::shut(), Arc::new(AtomicU32::new(0)));
    let (has_begun, held) = (Arc::clone(&runs), Arc::clone(&gate.0));
    let holds = Kernel::new(move |_| {
        has_begun.store(1, Relaxed);
        while held.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
    });
    session.launch(first, "holds", &holds, [buffer.write(..)], []).unwrap();
    while runs.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    let batch = filling(&mut session, &fill(0), &buffer, OnFailure::Retry(3));
    let fence = submit(&mut session, second, batch);
    let error = error_of(session.wait(&fence, patience()).unwrap_err());
    assert_eq!((&error.recovery, session.counts().retries), (&None, 0), "{error}");
    assert!(error.to_string().contains("holds"), "{error}");
}

#[test]
fn a_stream_that_was_given_up_is_usable_once_reopened() {
    let device = device(0);
    for closes in [false, true] {
        let mut session = Session::auto().with_patience(patience());
        let stream = compute(&mut session, &device, "a");
        let (buffer, semaphore) = (numbers(&device, 8), session.semaphore("s"));
        let failing = fill(u32::from(!closes));
        let before = session.launch(stream, "fill", &failing, [buffer.write(..)], [7]).unwrap();
        let mut batch = session.batch();
        batch.wait_semaphore(semaphore, 1).launch("add", &add(), [buffer.write(..)], [1]);
        let parked = submit(&mut session, stream, batch);
        assert_eq!(before.wait(bound()).is_ok(), closes);
        if closes {
            session.close(semaphore).unwrap();
        } else {
            session.signal(semaphore, 1).unwrap();
        }
        let refused = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap_err();
        assert!(matches!(refused, Refusal::Abandoned(_)), "{refused}");
        session.reopen(stream).unwrap();
        assert!(session.wait(&parked, patience()).is_err());
        let fence = session.launch(stream, "fill", &fill(0), [buffer.write(..)], [9]).unwrap();
        let _ = session.wait(&fence, patience()).unwrap();
        assert_eq!(session.to_vec(&buffer).unwrap(), [9; 8]);
    }
}

#[test]
fn a_retry_does_not_run_on_what_its_producer_never_wrote() {
    // The wait times out while the producer runs; the producer fails later, and may be reopened.
    for reopens in [false, true] {
        let device = device(0);
        let bound = Bound::within(Duration::from_millis(100));
        let mut session = Session::auto().with_patience(patience()).with_bound(bound);
        let [first, second] = ["a", "c"].map(|label| compute(&mut session, &device, label));
        let (x, y) = (numbers(&device, 8), numbers(&device, 8));
        let gate = Gate::shut();
        let open = Arc::clone(&gate.0);
        let produce = Kernel::new(move |_| {
            while open.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            panic!("not written");
        });
        let produced = session.launch(second, "produce", &produce, [x.write(..)], []).unwrap();
        let copy = Kernel::new(|kernel| {
            let from = kernel.read::<u32>(1).to_vec();
            kernel.write::<u32>(0).copy_from_slice(&from);
        });
        let mut batch = session.batch();
        batch.launch("consume", &copy, [y.write(..), x.read(..)], []);
        batch.idempotent().on_failure(OnFailure::Retry(1));
        let fence = submit(&mut session, first, batch);
        assert!(fence.wait(self::bound()).is_err(), "its wait took too long");
        gate.open();
        assert!(produced.wait(self::bound()).is_err());
        if reopens {
            session.reopen(second).unwrap();
        }
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        let Some(Recovery::NotRetried { times: 0, why }) = error.recovery.as_deref() else {
            panic!("{error}")
        };
        let Obstacle::Failed(cause) = why else { panic!("{error}") };
        assert!(cause.to_string().contains("not written"), "{error}");
        assert_eq!(session.counts().retries, 0);
    }
}

#[test]
fn a_retry_reads_what_its_producer_wrote_in_the_next_attempt() {
    let devices = [device(0), device(1)];
    let bound = Bound::within(Duration::from_millis(100));
    let mut session = Session::auto().with_patience(patience()).with_bound(bound);
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "c"][at]));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[1], 8));
    let (gate, runs) = (Gate::shut(), AtomicU32::new(0));
    let open = Arc::clone(&gate.0);
    let produce = Kernel::new(move |kernel| {
        while open.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert!(runs.fetch_add(1, Relaxed) > 0, "the first time");
        kernel.write::<u32>(0).fill(5);
    });
    let batch = filling(&mut session, &produce, &x, OnFailure::Retry(1));
    let produced = submit(&mut session, second, batch);
    let mut batch = session.batch();
    batch.copy("consume", x.read(..), y.write(..));
    batch.idempotent().on_failure(OnFailure::Retry(1));
    let consumed = submit(&mut session, first, batch);
    assert!(consumed.wait(self::bound()).is_err(), "its wait took too long");
    gate.open();
    assert!(produced.wait(self::bound()).is_err());
    assert_eq!(session.wait(&consumed, patience()).unwrap().retries, 1);
    assert_eq!(session.to_vec(&y).unwrap(), [5; 8]);
}

#[test]
fn nobody_meets_the_middle_of_what_fails_as_a_whole() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let x = numbers(&devices[0], 8);
    let event = session.event("middle");
    let semaphore = session.semaphore("middle");
    let policies = || [OnFailure::Retry(1), OnFailure::Rollback(vec![x.write(0..8)])];
    for policy in policies() {
        for tell in 0..3 {
            let mut batch = filling(&mut session, &fill(0), &x, policy.clone());
            match tell {
                0 => batch.record(event),
                1 => batch.signal(semaphore, 1),
                _ => batch.barrier(Barrier::Device),
            };
            batch.launch("add", &add(), [x.write(..)], [1]);
            let why = batch.seal().unwrap_err().why;
            assert!(why.contains("split it"), "{why}");
        }
    }
    // Neither does who waits for a command of it because of the bytes: here for the first.
    let gate = Gate::shut();
    let open = Arc::clone(&gate.0);
    let fails = Kernel::new(move |_| {
        while open.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        panic!("after the first");
    });
    session.write(&x, 0, &[3; 8]).unwrap();
    let policy = OnFailure::Rollback(vec![x.write(0..8)]);
    let mut batch = filling(&mut session, &fill(0), &x, policy);
    batch.launch("fails", &fails, [], []);
    let failed = submit(&mut session, first, batch);
    let followed = session.launch(second, "add", &add(), [x.write(..)], [1]).unwrap();
    let early = followed.wait(Bound::within(Duration::from_millis(50)));
    gate.open();
    assert!(early.is_err(), "it ran in the middle");
    let error = error_of(session.wait(&failed, patience()).unwrap_err());
    assert!(matches!(error.recovery.as_deref(), Some(Recovery::RolledBack(_))), "{error}");
    assert!(session.wait(&followed, patience()).is_err());
    session.reopen(second).unwrap();
    assert_eq!(session.to_vec(&x).unwrap(), [3; 8]);
}

#[test]
fn the_memory_of_a_rollback_that_never_began_fails_nobody_else() {
    let devices = [device(0), device(1)];
    for mut session in sessions() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
        let other = numbers(&devices[0], 8);
        // On the same device, so that the memory could be used again.
        let third = compute(&mut session, &devices[0], "c");
        let gate = Gate::shut();
        session.launch(first, "held", &gate.held(), [], []).unwrap();
        session.launch(first, "other", &fill(1), [other.write(..)], [1]).unwrap();
        let policy = OnFailure::Rollback(vec![x.write(0..8)]);
        let batch = filling(&mut session, &fill(0), &x, policy);
        let fence = submit(&mut session, first, batch);
        gate.open();
        let error = error_of(session.wait(&fence, patience()).unwrap_err());
        assert!(matches!(error.recovery.as_deref(), Some(Recovery::Untouched(_))), "{error}");
        let policy = OnFailure::Rollback(vec![y.write(0..8)]);
        let batch = filling(&mut session, &fill(0), &y, policy);
        let healthy = submit(&mut session, third, batch);
        let _ = session.wait(&healthy, patience()).unwrap();
        session.drain(second, patience()).unwrap();
    }
}

#[test]
fn a_patience_of_zero_looks_once() {
    let device = device(0);
    let none = Patience::within(Duration::ZERO);
    let mut session = Session::auto().with_patience(none);
    let queue = QueueSpec { credits: Some(1), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, queue, "a").unwrap();
    let [stream, other] = ["a", "b"].map(|label| session.stream_over(queue, label).unwrap());
    let third = compute(&mut session, &device, "c");
    let buffer = numbers(&device, 8);
    let (completer, outside) = session.completer("outside").unwrap();
    assert!(session.wait(&outside, none).unwrap_err().is_timeout());
    let gate = Gate::shut();
    let fence = session.launch(stream, "held", &gate.held(), [buffer.write(..)], []).unwrap();
    assert!(session.wait(&fence, none).unwrap_err().is_timeout());
    assert!(session.drain(stream, none).unwrap_err().is_timeout());
    let is_timeout =
        |error: HostError| matches!(error, HostError::Wait(it) if it.error.is_timeout());
    assert!(is_timeout(session.to_vec(&buffer).unwrap_err()));
    assert!(is_timeout(session.write(&buffer, 0, &[1]).unwrap_err()));
    assert!(is_timeout(session.free(&buffer).unwrap_err()));
    let refused = session.launch(other, "add", &add(), [buffer.write(..)], [1]).unwrap_err();
    assert!(matches!(refused, Refusal::NoRoom(_)), "{refused}");
    // Parked in another session, and with a full sync.
    let mut apart = Session::auto().with_patience(none).with_full_sync(FullSync::Device);
    let here = compute(&mut apart, &device, "d");
    apart.launch(here, "add", &add(), [numbers(&device, 8).write(..)], [1]).unwrap();
    let semaphore = session.semaphore("s");
    let mut batch = session.batch();
    batch.wait_semaphore(semaphore, 1).launch("add", &add(), [buffer.write(..)], [1]);
    let parked = submit(&mut session, third, batch);
    assert!(apart.wait(&parked, none).unwrap_err().is_timeout());
    completer.complete(Ok(()));
    gate.open();
    fence.wait(bound()).unwrap();
    let _ = session.wait(&outside, none).unwrap();
    let _ = session.wait(&fence, none).unwrap();
    session.drain(stream, none).unwrap();
    assert_eq!(session.to_vec(&buffer).unwrap(), [0; 8]);
    let named = session.free(&buffer).unwrap_err();
    assert!(matches!(named, HostError::Refused(Refusal::Named { .. })), "{named}");
    session.signal(semaphore, 1).unwrap();
    session.drain(third, patience()).unwrap();
    session.free(&buffer).unwrap();
}

#[test]
fn a_look_at_a_batch_does_not_cost_it_its_retry() {
    let devices = [device(0), device(1)];
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
    let (x, y) = (numbers(&devices[0], 8), numbers(&devices[0], 8));
    let gate = Gate::shut();
    session.launch(second, "held", &gate.held(), [y.write(..)], []).unwrap();
    // What it was to come after has to be over before it runs again.
    let mut batch = filling(&mut session, &fill(1), &x, OnFailure::Retry(1));
    batch.launch("add", &add(), [y.write(..)], [1]);
    let fence = submit(&mut session, first, batch);
    assert!(fence.wait(bound()).is_err());
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
    });
    let _ = session.wait(&fence, Patience::within(Duration::ZERO));
    assert_eq!(session.wait(&fence, patience()).unwrap().retries, 1);
    later.join().unwrap();
}

#[test]
fn a_submission_has_one_deadline() {
    let device = device(0);
    let cap = Duration::from_secs(2);
    let mut session = Session::auto().with_patience(Patience::within(cap).at_most(cap));
    let queue = QueueSpec { credits: Some(1), ..QueueSpec::new(Kind::Compute) };
    let queue = session.queue(&device, queue, "a").unwrap();
    let stream = session.stream_over(queue, "a").unwrap();
    let other = compute(&mut session, &device, "b");
    let (x, y) = (numbers(&device, 8), numbers(&device, 8));
    let (gate, never) = (Gate::shut(), Gate::shut());
    session.launch(other, "held", &gate.held(), [y.write(..)], []).unwrap();
    // It runs again once the held one is over, and then there is no room.
    let mut batch = filling(&mut session, &fill(1), &x, OnFailure::Retry(1));
    batch.launch("add", &add(), [y.write(..)], [1]).launch("never", &never.held(), [], []);
    let fence = submit(&mut session, stream, batch);
    assert!(fence.wait(bound()).is_err());
    let later = std::thread::spawn(move || {
        std::thread::sleep(cap * 3 / 4);
        gate.open();
    });
    let refused = session.launch(stream, "add", &add(), [x.write(..)], [1]).unwrap_err();
    let Refusal::NoRoom(FenceError { error: WaitError::TimedOut { waited, .. }, .. }) = refused
    else {
        panic!("{refused}")
    };
    assert_eq!(session.counts().retries, 1);
    assert!(waited.as_duration() < cap * 9 / 10, "{waited}: it started anew");
    later.join().unwrap();
}

#[test]
fn callbacks_do_not_pile_up_while_only_submissions_are_made() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let stream = compute(&mut session, &device, "a");
    let (buffer, ran) = (numbers(&device, 8), Arc::new(AtomicU32::new(0)));
    const SUBMISSIONS: u32 = 1000;
    for _ in 0..SUBMISSIONS {
        let fence = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
        let ran = Arc::clone(&ran);
        session.on_complete(&fence, move |_| {
            ran.fetch_add(1, Relaxed);
        });
        fence.wait(bound()).unwrap();
    }
    let left = SUBMISSIONS - ran.load(Relaxed);
    assert!(left < 64, "{left} are left");
    session.progress();
    assert_eq!(ran.load(Relaxed), SUBMISSIONS);
}

#[test]
fn a_rollback_does_not_fail_of_its_own_victims() {
    let device = device(0);
    let mut session = Session::auto().with_patience(patience());
    let [first, second] = ["a", "b"].map(|label| compute(&mut session, &device, label));
    let (x, y) = (numbers(&device, 8), numbers(&device, 8));
    let gate = Gate::shut();
    let policy = OnFailure::Rollback(vec![x.write(0..8)]);
    let batch = filling(&mut session, &fill(1), &x, policy);
    let fence = submit(&mut session, first, batch);
    // It is to come after the batch, and has yet to see that it failed.
    let mut batch = session.batch();
    batch.launch("held", &gate.held(), [y.write(..)], []);
    batch.launch("add", &add(), [x.write(..)], [1]);
    let victim = submit(&mut session, second, batch);
    assert!(fence.wait(bound()).is_err());
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
    });
    let error = error_of(session.wait(&fence, patience()).unwrap_err());
    assert!(matches!(error.recovery.as_deref(), Some(Recovery::RolledBack(_))), "{error}");
    assert!(session.wait(&victim, patience()).is_err());
    assert_eq!(session.to_vec(&x).unwrap(), [0; 8]);
    later.join().unwrap();
}

#[test]
fn a_reopened_stream_does_not_hide_what_others_failed_to_write() {
    let devices = [device(0), device(1)];
    for mut session in sessions() {
        let [first, second] = [0, 1].map(|at| compute(&mut session, &devices[at], ["a", "b"][at]));
        let buffer = numbers(&devices[0], 8);
        let failed = session.launch(second, "fill", &fill(1), [buffer.write(..)], [7]).unwrap();
        session.stream_wait(first, &failed).unwrap();
        // Never runs, and is the last use of the bytes.
        let hides = session.launch(first, "hides", &add(), [buffer.write(..)], [1]).unwrap();
        assert!(session.wait(&hides, patience()).is_err());
        session.reopen(first).unwrap();
        match session.launch(first, "add", &add(), [buffer.write(..)], [1]) {
            Ok(fence) => {
                let error = error_of(session.wait(&fence, patience()).unwrap_err());
                let Some(Root::Fault(root)) = error.root.as_deref() else { panic!("{error}") };
                assert_eq!(root.command, "fill", "{error}");
                session.reopen(first).unwrap();
            }
            Err(refused) => assert!(matches!(refused, Refusal::Missing(_)), "{refused}"),
        }
        assert!(session.to_vec(&buffer).is_err());
        session.reopen(second).unwrap();
        assert_eq!(session.to_vec(&buffer).unwrap(), [7, 7, 7, 7, 0, 0, 0, 0]);
    }
}

#[test]
fn a_reopened_stream_has_its_batches_recovered_first() {
    let device = device(0);
    for mut session in sessions() {
        let stream = compute(&mut session, &device, "a");
        let buffer = numbers(&device, 8);
        let policy = OnFailure::Rollback(vec![buffer.write(0..8)]);
        let batch = filling(&mut session, &fill(1), &buffer, policy);
        let failed = submit(&mut session, stream, batch);
        assert!(failed.wait(bound()).is_err());
        session.reopen(stream).unwrap();
        let later = session.launch(stream, "add", &add(), [buffer.write(..)], [1]).unwrap();
        let _ = session.wait(&later, patience()).unwrap();
        let error = error_of(session.wait(&failed, patience()).unwrap_err());
        assert!(matches!(error.recovery.as_deref(), Some(Recovery::RolledBack(_))), "{error}");
        assert_eq!(session.to_vec(&buffer).unwrap(), [1; 8]);
    }
}
