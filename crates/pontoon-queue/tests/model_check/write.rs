//! A program as a scenario file, so that a failure can be tried with `pontoon check`.

use std::fmt::Write;

use pontoon_queue::check::{
    Access, Act, Command, HostWait, Mode, Program, Raise, SemaphoreWait, Signal, ThreadId, Work,
};

pub(crate) fn scenario(program: &Program) -> String {
    let mut text = String::from("{\"format\": \"pontoon-scenario/1\",\n\"buffers\": [");
    let buffers = program.buffers.iter().enumerate().map(|(at, buffer)| match buffer.of {
        None => format!("{{\"id\": \"b{at}\", \"size\": {}}}", buffer.size),
        Some((of, offset)) => format!(
            "{{\"id\": \"b{at}\", \"of\": \"b{}\", \"offset\": {offset}, \"size\": {}}}",
            of.0, buffer.size
        ),
    });
    text += &lines(buffers);
    text += "],\n\"queues\": [";
    text += &lines(program.queues.iter().enumerate().map(|(at, queue)| {
        let mut text = format!("{{\"id\": \"q{at}\", \"device\": \"d\"");
        if queue.launch_order {
            text += ", \"order\": \"launch\"";
        }
        if let Some(fifo) = queue.hardware {
            let _ = write!(text, ", \"hardware\": \"h{}\"", fifo.0);
        }
        if let Some(credits) = queue.credits {
            let _ = write!(text, ", \"credits\": {credits}");
        }
        let implicit = list(queue.implicit.iter().map(|id| format!("q{}", id.0)));
        text + &format!(", \"implicit\": {implicit}}}")
    }));
    text += "],\n\"semaphores\": [";
    text += &lines(program.semaphores.iter().enumerate().map(|(at, semaphore)| {
        let (initial, external) = (semaphore.initial, semaphore.external);
        format!("{{\"id\": \"s{at}\", \"initial\": {initial}, \"external\": {external}}}")
    }));
    text += "],\n\"locks\": ";
    text += &list((0..program.locks).map(|at| format!("l{at}")));
    text += ",\n\"program\": [";
    text += &lines(program.entries.iter().map(|entry| act(entry.thread, &entry.act)));
    text + "]}\n"
}

fn act(thread: ThreadId, act: &Act) -> String {
    let host = format!("{{\"on\": \"host:t{}\", \"do\": ", thread.0);
    match act {
        Act::Submit(queue, command) => {
            let (on, by) = (queue.0, thread.0);
            format!("{{\"on\": \"q{on}\", \"by\": \"host:t{by}\", \"do\": {}}}", body(command))
        }
        Act::Access(all) => format!("{host}\"write\"{}}}", accesses(all)),
        Act::Wait(waits) => {
            format!("{host}\"wait\", \"wait\": {}}}", list(waits.iter().map(host_wait)))
        }
        Act::Signal(all) => format!("{host}\"signal\", \"signal\": {}}}", signals(all)),
        Act::Free(id) => format!("{host}\"free\", \"buf\": \"b{}\"}}", id.0),
        Act::Lock(id) => format!("{host}\"lock\", \"lock\": \"l{}\"}}", id.0),
        Act::Unlock(id) => format!("{host}\"unlock\", \"lock\": \"l{}\"}}", id.0),
        Act::Drop(id) => format!("{host}\"drop\", \"semaphore\": \"s{}\"}}", id.0),
    }
}

fn body(command: &Command) -> String {
    let names = |classes: &Vec<_>| {
        let classes: &Vec<pontoon_queue::check::ClassId> = classes;
        list(classes.iter().map(|class| format!("c{}", class.0)))
    };
    match command {
        Command::Work(work) => self::work(work),
        Command::Barrier { from, to } => {
            let from = from.as_ref().map(|it| format!(", \"from\": {}", names(it)));
            let to = to.as_ref().map(|it| format!(", \"to\": {}", names(it)));
            format!("\"barrier\"{}{}", from.unwrap_or_default(), to.unwrap_or_default())
        }
        Command::Record(id) => format!("\"record\", \"event\": \"e{}\"", id.0),
        Command::WaitEvent(id) => format!("\"wait_event\", \"event\": \"e{}\"", id.0),
    }
}

fn work(work: &Work) -> String {
    let kind = work.collective.map_or("\"kernel\"".to_owned(), |id| {
        format!("\"collective\", \"id\": \"x{}\", \"rank\": \"?\"", id.0)
    });
    let class = work.class.map(|class| format!(", \"class\": \"c{}\"", class.0));
    let fails = if work.fails { ", \"outcome\": \"error\"" } else { "" };
    format!(
        "{kind}{}, \"wait\": {}, \"signal\": {}{}{fails}",
        accesses(&work.accesses),
        list(work.waits.iter().map(wait)),
        signals(&work.signals),
        class.unwrap_or_default(),
    )
}

fn accesses(all: &[Access]) -> String {
    let mut text = String::new();
    for (key, mode) in [
        ("reads", Mode::Read),
        ("writes", Mode::Write),
        ("rmw", Mode::ReadWrite),
        ("atomic", Mode::Atomic),
    ] {
        let own = all.iter().filter(|access| access.mode == mode);
        let own: Vec<_> = own
            .map(|it| format!("b{}[{}..{}]", it.buffer.0, it.range.start, it.range.end))
            .collect();
        if !own.is_empty() {
            let _ = write!(text, ", \"{key}\": {}", list(own.into_iter()));
        }
    }
    text
}

fn signals(all: &[Signal]) -> String {
    list(all.iter().map(|signal| match signal.raise {
        Raise::To(to) => format!("s{}={to}", signal.semaphore.0),
        Raise::By(by) => format!("s{}+={by}", signal.semaphore.0),
    }))
}

fn wait(wait: &SemaphoreWait) -> String {
    format!("s{}>={}", wait.semaphore.0, wait.value)
}

fn host_wait(host: &HostWait) -> String {
    match host {
        HostWait::Semaphore(it) => wait(it),
        HostWait::Queue(id) => format!("q{}", id.0),
        HostWait::Event(id) => format!("event:e{}", id.0),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", items.join(", "))
}

fn lines(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.map(|item| format!("\n  {item}")).collect();
    items.join(",")
}
