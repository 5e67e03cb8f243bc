//! PyTorch's profiler (Kineto): what a rank's GPU and CPU did, among it the collectives.
//!
//! With GPU kernels in the file, collectives are NCCL's kernels (and Gloo's, on the CPU), everything else on the GPU is
//! computation. Without, collectives are the spans that the process group annotates (`gloo:all_reduce`, …) and computation
//! is the operators that no other operator called. What is kept until the file ends is a few tens of bytes for each event;
//! events are some 300 bytes long.

mod collectives;
mod description;

use std::collections::HashMap;

use self::collectives::{Annotation, Kernel, Launch};
use self::description::Description;
use super::complaint::FilePosition;
use super::event::{Event, Id};
use super::json::{NS_MAX, Value, member};
use super::model::{Mark, MarkKind, Operation, Span, WALL_CLOCK_MIN_NS};
use super::reader::Out;

/// What a process group's annotations begin with.
const BACKENDS: [&str; 4] = ["nccl:", "gloo:", "mpi:", "ucc:"];

/// The reader.
#[derive(Debug, Default)]
pub(super) struct Kineto {
    /// Wall clock that times count from, nanoseconds since 1970.
    base_ns: i64,
    threads: HashMap<ThreadKey, u32>,
    /// NCCL's kernels.
    kernels: Vec<Kernel>,
    /// Annotated collectives of the process group.
    annotations: Vec<Annotation>,
    /// Descriptions of collectives on the CPU (`record_param_comms`).
    parameters: Vec<Annotation>,
    /// Kernel launches on the CPU.
    launches: Vec<Launch>,
    /// What the GPU computed.
    gpu: Vec<Span>,
    /// What the CPU computed, by thread; not kept once a kernel has been seen.
    cpu: Vec<(u32, Span)>,
    has_gpu: bool,
    /// Ends of steps.
    steps: Vec<i64>,
}

type ThreadKey = (Box<[u8]>, Box<[u8]>);

impl Kineto {
    /// The next event.
    pub(super) fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>, out: &mut Out<'_>) {
        // Flow arrows, metadata, counters say nothing of time spent.
        if event.phase != b'X' {
            return;
        }
        let class = Class::of(event);
        if class == Class::Other {
            return;
        }
        let Some(span) = out.span(event, place) else {
            return;
        };
        match class {
            Class::Step => self.steps.push(span.ended),
            Class::Kernel => self.kernel(event, span, out),
            Class::Annotation => {
                let annotation = self.annotation(event, span);
                self.annotations.push(annotation);
            }
            Class::Parameters => {
                let parameters = self.annotation(event, span);
                self.parameters.push(parameters);
            }
            Class::Launch => {
                let correlation = event.argument("correlation").and_then(Value::count);
                if let Some(correlation) = correlation {
                    let thread = self.thread(event);
                    self.launches.push(Launch {
                        correlation,
                        thread,
                        at: span.began,
                    });
                }
            }
            Class::Operator => {
                if !self.has_gpu {
                    let thread = self.thread(event);
                    self.cpu.push((thread, span));
                }
            }
            Class::Other => {}
        }
    }

    /// Something the GPU did.
    fn kernel(&mut self, event: &Event<'_>, span: Span, out: &mut Out<'_>) {
        if !self.has_gpu {
            self.has_gpu = true;
            self.cpu = Vec::new();
        }
        let name = event.name.decode();
        if !is_nccl(&name) {
            return self.gpu.push(span);
        }
        // Without the parameter list of a C++ function.
        let name = name.split('(').next().unwrap_or_default().trim();
        self.kernels.push(Kernel {
            name: out.name(name),
            text: name.into(),
            span,
            correlation: event.argument("correlation").and_then(Value::count),
            description: Description::of(event.arguments),
        });
    }

    fn annotation(&mut self, event: &Event<'_>, span: Span) -> Annotation {
        Annotation {
            name: event.name.decode().into(),
            span,
            thread: self.thread(event),
            description: Description::of(event.arguments),
        }
    }

    /// The thread's number.
    fn thread(&mut self, event: &Event<'_>) -> u32 {
        let bytes = |id| -> Box<[u8]> {
            match id {
                Id::None => [].into(),
                Id::Number(number) => number.to_le_bytes().into(),
                Id::Text(text) => text.into(),
            }
        };
        let next = self.threads.len() as u32;
        let key = (bytes(event.process), bytes(event.thread));
        *self.threads.entry(key).or_insert(next)
    }

    /// A member beside the events.
    pub(super) fn header(&mut self, key: &str, value: &[u8], out: &mut Out<'_>) {
        match key {
            "distributedInfo" => {
                let count = |key| member(value, key).and_then(Value::count);
                let small = |key| count(key).and_then(|number| u32::try_from(number).ok());
                out.source.rank = small("rank").or(out.source.rank);
                out.source.size = small("world_size").or(out.source.size);
            }
            "baseTimeNanoseconds" => self.base_ns = Value::Word(value).integer().unwrap_or(0),
            _ => {}
        }
    }

    /// The file ends: everything is sorted and told.
    pub(super) fn finish(mut self, out: &mut Out<'_>) {
        let zero = self.zero();
        // Older versions write the wall clock itself.
        let base = if zero >= WALL_CLOCK_MIN_NS {
            0
        } else {
            self.base_ns
        };
        let base = base.saturating_add(zero);
        out.source.epoch_ns = (base >= WALL_CLOCK_MIN_NS).then_some(base);
        let mut compute = if self.has_gpu {
            std::mem::take(&mut self.gpu)
        } else {
            outermost(std::mem::take(&mut self.cpu))
        };
        compute.sort_unstable();
        let mut steps = std::mem::take(&mut self.steps);
        steps.sort_unstable();
        let mut operations = collectives::operations(self, out);
        operations.sort_by_key(ended);
        let shift = |span: Span| Span {
            began: span.began.saturating_sub(zero).min(NS_MAX),
            ended: span.ended.saturating_sub(zero).min(NS_MAX),
        };
        let (mut compute, mut steps) = (compute.into_iter().peekable(), steps.into_iter().peekable());
        // Told in order of time: each operation after the computation that began and the steps that ended before.
        let mut until = |limit: Option<i64>, out: &mut Out<'_>| {
            let within = |at: i64| limit.is_none_or(|limit| at <= limit);
            loop {
                let span = compute.peek().copied().filter(|span| within(span.began));
                let step = steps.peek().copied().filter(|&at| within(at));
                match (span, step) {
                    (Some(span), step) if step.is_none_or(|at| span.began <= at) => {
                        compute.next();
                        out.visitor.compute(shift(span));
                    }
                    (_, Some(at)) => {
                        steps.next();
                        let kind = MarkKind::Step;
                        let at = at.saturating_sub(zero).min(NS_MAX);
                        out.visitor.mark(Mark { kind, at });
                    }
                    _ => break,
                }
            }
        };
        for mut operation in operations {
            until(Some(ended(&operation)), out);
            operation.execution = operation.execution.map(shift);
            for activity in &mut operation.activities {
                activity.span = shift(activity.span);
            }
            for tick in &mut operation.ticks {
                tick.at = tick.at.saturating_sub(zero).min(NS_MAX);
            }
            out.visitor.operation(&operation);
        }
        until(None, out);
    }

    /// The earliest time of all that is told.
    fn zero(&self) -> i64 {
        let kernels = self.kernels.iter().map(|kernel| kernel.span.began);
        let annotations = self.annotations.iter().map(|annotation| annotation.span.began);
        let spans = self.gpu.iter().chain(self.cpu.iter().map(|(_, span)| span));
        let spans = spans.map(|span| span.began);
        let launches = self.launches.iter().map(|launch| launch.at);
        let all = kernels.chain(annotations).chain(spans).chain(launches);
        all.chain(self.steps.iter().copied()).min().unwrap_or(0)
    }
}

fn ended(operation: &Operation) -> i64 {
    operation.execution.map_or(0, |span| span.ended)
}

/// What an event is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Step,
    Kernel,
    Annotation,
    Parameters,
    Launch,
    Operator,
    Other,
}

impl Class {
    fn of(event: &Event<'_>) -> Self {
        let name = event.name.raw;
        match event.category.raw {
            b"kernel" | b"Kernel" | b"gpu_memcpy" | b"Memcpy" | b"gpu_memset" | b"Memset" => Self::Kernel,
            b"cuda_runtime" | b"cuda_driver" | b"Runtime" => Self::Launch,
            b"cpu_op" | b"user_annotation" | b"Operator" if name.starts_with(b"ProfilerStep#") => Self::Step,
            b"cpu_op" | b"user_annotation" | b"Operator" if name == b"record_param_comms" => Self::Parameters,
            b"cpu_op" | b"user_annotation" | b"Operator"
                if BACKENDS
                    .iter()
                    .any(|backend| name.starts_with(backend.as_bytes())) =>
            {
                Self::Annotation
            }
            // Calls into the process group wait for others: no computation.
            b"cpu_op" | b"Operator" if !name.starts_with(b"c10d::") => Self::Operator,
            _ => Self::Other,
        }
    }
}

/// NCCL's kernels, RCCL's and MSCCL's, of all versions: `ncclKernel_AllReduce_RING_LL_Sum_float`, `ncclDevKernel_…`.
fn is_nccl(name: &str) -> bool {
    name.contains("nccl") && name.contains("Kernel") || name.starts_with("mscclKernel")
}

/// The spans that are within no other of their thread.
fn outermost(mut spans: Vec<(u32, Span)>) -> Vec<Span> {
    spans.sort_unstable_by_key(|&(thread, span)| (thread, span.began, std::cmp::Reverse(span.ended)));
    let mut outer: Vec<Span> = Vec::new();
    let mut last: Option<(u32, i64)> = None;
    for (thread, span) in spans {
        if last.is_some_and(|(of, ended)| of == thread && span.began < ended) {
            continue;
        }
        last = Some((thread, span.ended));
        outer.push(span);
    }
    outer
}

#[cfg(test)]
mod tests;
