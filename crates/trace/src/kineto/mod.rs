//! Reader for traces of PyTorch's profiler (Kineto): the GPU and CPU work of a rank, and its
//! collectives.
//!
//! With GPU kernels in the file, collectives are NCCL's kernels (and Gloo's annotations, on the
//! CPU), other kernels are computation, and copies and events of unknown type are other work of the
//! GPU. Without GPU kernels, collectives are the spans that the process group annotates
//! (`gloo:all_reduce`, …), and computation is the operators that no other operator called. A few
//! tens of bytes for each event are kept until the file ends; events are some 300 bytes long.

mod class;
mod collectives;
mod description;
mod device;
mod occurrence;

use std::collections::HashMap;

use self::class::{Class, is_nccl, is_unknown_collective};
use self::collectives::{Annotation, Kernel, Launch};
use self::description::Description;
use self::device::GpuWork;
use super::complaint::{Complaint, FilePosition};
use super::event::{Event, Id};
use super::json::{NS_MAX, Value, member};
use super::model::{Mark, MarkKind, Operation, Span, WALL_CLOCK_MIN_NS, Work};
use super::reader::Out;

/// Reader for profiler traces.
#[derive(Debug, Default)]
pub(super) struct Kineto {
    /// Wall clock at time 0, nanoseconds since 1970.
    base_ns: i64,
    threads: HashMap<ThreadKey, u32>,
    /// NCCL kernels.
    kernels: Vec<Kernel>,
    /// Annotated collectives of the process group.
    annotations: Vec<Annotation>,
    /// Descriptions of collectives on the CPU (`record_param_comms`).
    parameters: Vec<Annotation>,
    /// Kernel launches on the CPU.
    launches: Vec<Launch>,
    /// Other work of the GPU.
    gpu: Vec<GpuWork>,
    /// CPU operators, by thread; not kept once a kernel has been seen.
    cpu: Vec<(u32, Span)>,
    has_gpu: bool,
    /// Marked steps (`ProfilerStep#n`).
    steps: Vec<Span>,
}

type ThreadKey = (Box<[u8]>, Box<[u8]>);

impl Kineto {
    /// Reads the next event.
    pub(super) fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>, out: &mut Out<'_>) {
        // Flow arrows, metadata and counters have no duration.
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
            Class::Step => self.steps.push(span),
            Class::Kernel => self.kernel(event, span, place, out),
            Class::Copy => self.gpu_work(event, span, Work::OtherGpu),
            Class::UnknownGpu => {
                let detail = || {
                    format!(
                        "category {:?}, {:?}",
                        event.category.decode(),
                        event.name.decode()
                    )
                };
                out.complaints.add(Complaint::UnknownKernel, place, detail);
                self.gpu_work(event, span, Work::OtherGpu);
            }
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

    /// Adds work of the GPU other than NCCL kernels.
    fn gpu_work(&mut self, event: &Event<'_>, span: Span, work: Work) {
        if !self.has_gpu {
            self.has_gpu = true;
            self.cpu = Vec::new();
        }
        let device = device::of(event);
        self.gpu.push(GpuWork { span, work, device });
    }

    /// Adds a kernel.
    fn kernel(
        &mut self,
        event: &Event<'_>,
        span: Span,
        place: FilePosition<'_>,
        out: &mut Out<'_>,
    ) {
        let name = event.name.decode();
        if !is_nccl(&name) {
            if !is_unknown_collective(&name) {
                return self.gpu_work(event, span, Work::Kernel);
            }
            let detail = || format!("kernel {name:?}");
            out.complaints.add(Complaint::UnknownKernel, place, detail);
            return self.gpu_work(event, span, Work::OtherGpu);
        }
        self.has_gpu = true;
        self.cpu = Vec::new();
        // Removes the parameter list of a C++ function.
        let name = name.split('(').next().unwrap_or_default().trim();
        self.kernels.push(Kernel {
            name: out.name(name),
            text: name.into(),
            span,
            device: device::of(event),
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

    /// Number of the event's thread.
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

    /// Reads a member beside the events.
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

    /// Ends the file: sorts everything and passes it to the visitor.
    pub(super) fn finish(mut self, out: &mut Out<'_>) {
        self.keep_one_gpu(out);
        let mut calls = self.annotations.iter().map(|call| &call.name);
        out.source.host_only = !self.has_gpu && calls.any(|name| name.starts_with("nccl:"));
        let zero = self.zero();
        // Older versions write wall clock times.
        let base = if zero >= WALL_CLOCK_MIN_NS {
            0
        } else {
            self.base_ns
        };
        let base = base.saturating_add(zero);
        out.source.epoch_ns = (base >= WALL_CLOCK_MIN_NS).then_some(base);
        let mut compute: Vec<(Span, Work)> = if self.has_gpu {
            if self.gpu.is_empty() {
                // Tells that the work of the GPU is known, even if it consists of collectives only.
                self.gpu.push(GpuWork {
                    span: Span {
                        began: zero,
                        ended: zero,
                    },
                    work: Work::OtherGpu,
                    device: None,
                });
            }
            let gpu = std::mem::take(&mut self.gpu).into_iter();
            gpu.map(|work| (work.span, work.work)).collect()
        } else {
            let cpu = outermost(std::mem::take(&mut self.cpu)).into_iter();
            cpu.map(|span| (span, Work::Cpu)).collect()
        };
        compute.sort_unstable();
        let steps = marked(std::mem::take(&mut self.steps));
        let mut operations = collectives::operations(self, &steps, out);
        operations.sort_by_key(ended);
        let marks = steps.iter().flat_map(|step| {
            [
                (step.began, MarkKind::StepBegin),
                (step.ended, MarkKind::Step),
            ]
        });
        let shift = |span: Span| Span {
            began: span.began.saturating_sub(zero).min(NS_MAX),
            ended: span.ended.saturating_sub(zero).min(NS_MAX),
        };
        let (mut compute, mut marks) = (compute.into_iter().peekable(), marks.peekable());
        // Everything is passed in order of time: an operation comes after the computation that
        // began, and the steps that ended, before it.
        let mut until = |limit: Option<i64>, out: &mut Out<'_>| {
            let within = |at: i64| limit.is_none_or(|limit| at <= limit);
            loop {
                let span = compute
                    .peek()
                    .copied()
                    .filter(|(span, _)| within(span.began));
                let mark = marks.peek().copied().filter(|&(at, _)| within(at));
                match (span, mark) {
                    (Some((span, work)), mark) if mark.is_none_or(|(at, _)| span.began <= at) => {
                        compute.next();
                        out.visitor.compute(shift(span), work);
                    }
                    (_, Some((at, kind))) => {
                        marks.next();
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

    /// Removes the work of all GPUs but one.
    fn keep_one_gpu(&mut self, out: &mut Out<'_>) {
        let Some(selected) = device::select(&self.kernels, &self.gpu) else {
            return;
        };
        let detail = || format!("the report is about GPU {selected}");
        let mut keep = |device: Option<u64>| {
            let kept = device.is_none_or(|device| device == selected);
            if !kept {
                let place = FilePosition::default();
                out.complaints.add(Complaint::OtherGpu, place, detail);
            }
            kept
        };
        self.kernels.retain(|kernel| keep(kernel.device));
        self.gpu.retain(|work| keep(work.device));
    }

    /// Earliest time of everything that is passed to the visitor.
    fn zero(&self) -> i64 {
        let kernels = self.kernels.iter().map(|kernel| kernel.span.began);
        let annotations = self
            .annotations
            .iter()
            .map(|annotation| annotation.span.began);
        let gpu = self.gpu.iter().map(|work| &work.span);
        let spans = gpu
            .chain(self.cpu.iter().map(|(_, span)| span))
            .chain(&self.steps);
        let spans = spans.map(|span| span.began);
        let launches = self.launches.iter().map(|launch| launch.at);
        let all = kernels.chain(annotations).chain(spans).chain(launches);
        all.min().unwrap_or(0)
    }
}

fn ended(operation: &Operation) -> i64 {
    operation.execution.map_or(0, |span| span.ended)
}

/// Marked steps in order of time. A step that is marked twice (as operator and as annotation)
/// counts once.
fn marked(mut steps: Vec<Span>) -> Vec<Span> {
    steps.sort_unstable();
    let mut kept: Vec<Span> = Vec::new();
    for mut step in steps {
        if let Some(last) = kept.last() {
            if step.ended <= last.ended || step.began < last.began + (last.ended - last.began) / 2 {
                continue;
            }
            step.began = step.began.max(last.ended);
        }
        kept.push(step);
    }
    kept
}

/// Spans that are not within another span of their thread.
fn outermost(mut spans: Vec<(u32, Span)>) -> Vec<Span> {
    spans.sort_unstable_by_key(|&(thread, span)| {
        (thread, span.began, std::cmp::Reverse(span.ended))
    });
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
