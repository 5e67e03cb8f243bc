//! Negotiation of jobs with up to 10,240 ranks on 1,280 hosts: the code of the real transport and
//! negotiation on a simulated network, whose costs are measured on this machine.
//!
//! `scripts/bench-scale` runs [`table`] and writes `results/scale`. The former exchange of Ronde
//! and that of Horovod are formulas ([`models`]) with the same costs.

use std::time::Instant;

use costs::Measured;
use models::Estimate;

use crate::negotiation::block::attached_words;
use crate::negotiation::response::{decode, encode};
use crate::negotiation::{
    Agreement, Block, Coordinator, OpKind, Params, Request, RequestList, ResponseCache,
};
use crate::tensor::Dtype;
use crate::transport::rounds::{self, Exchanged, InvalidState};
use crate::transport::simulated::{Costs, Network};
use crate::transport::{Combine, Prefix};

mod costs;
mod models;

/// Tensors of a step: about those of ResNet-50.
const TENSORS: usize = 160;

/// Words of their bits in the response cache.
const WORDS: usize = TENSORS.div_ceil(64);

/// Ranks of a host.
const PER_HOST: usize = 8;

/// The block of `rank`: all tensors are ready on all ranks, but one that is on every second rank.
fn block(rank: usize) -> Block {
    let mut block = Block::new(WORDS);
    (0..TENSORS - rank % 2).for_each(|slot| block.set(slot, 1_000 + rank as u64));
    block.settings.version = 5;
    block.hold.from_ns = rank as u64;
    block
}

/// The bits of the tensors in the response cache.
fn slots() -> Vec<u64> {
    let mut slots = vec![0; WORDS];
    (0..TENSORS).for_each(|slot| slots[slot / 64] |= 1 << (slot % 64));
    slots
}

/// An agreement of `size` ranks, prepared for a cycle.
fn agreement(size: usize) -> Agreement {
    let mut agreed = Agreement::new(size, true);
    agreed.prepare(&slots());
    agreed
}

/// The combined blocks of the ranks of `host`.
fn state_of(host: usize, hosts: usize) -> Exchanged {
    let mut agreed = agreement(hosts * PER_HOST);
    let own = block(host * PER_HOST);
    let own = own.contribution(false);
    agreed.start(own.fact_words());
    for rank in host * PER_HOST..(host + 1) * PER_HOST {
        agreed.add(rank, &block(rank)).expect("a valid block");
    }
    Exchanged::new(agreed.partial(), Prefix::new(1, &own))
}

/// Exchanges the states of all hosts over `network`.
fn exchange(network: &Network, hosts: usize) -> Vec<Result<Exchanged, InvalidState>> {
    network.exchange((0..hosts).map(|host| state_of(host, hosts)).collect())
}

/// Has `rank` adopt the combination that its host has.
fn adopt(state: &mut Exchanged, rank: usize, size: usize) -> Agreement {
    let mut agreed = agreement(size);
    let own = block(rank);
    let prefix = Prefix::new(1, &own.contribution(false));
    let mut words = Vec::new();
    rounds::read(&state.message(), prefix, &mut words).expect("a valid message");
    agreed.adopt(&words, rank, &own).expect("it fits the block");
    agreed.conclude();
    agreed
}

#[test]
fn ten_thousand_ranks_on_1280_hosts_agree_in_eleven_rounds() {
    for hosts in [1, 2, 5, 1_280] {
        let network = Network::new(hosts, Costs::default());
        let mut states = exchange(&network, hosts);
        let size = hosts * PER_HOST;
        let mut common = slots();
        common[WORDS - 1] &= !(1 << ((TENSORS - 1) % 64));
        let mut message = Vec::new();
        for (host, state) in states.iter_mut().enumerate() {
            let state = state.as_mut().expect("no host is hostile");
            if host == 0 {
                message = state.message();
            }
            assert_eq!(state.message(), message, "host {host}");
            for rank in host * PER_HOST..(host + 1) * PER_HOST {
                let agreed = adopt(state, rank, size);
                assert_eq!(agreed.common(), common, "rank {rank}");
                assert!(agreed.is_held(TENSORS - 1));
                assert_eq!(agreed.hold().from_ns, size as u64 - 1);
            }
        }
        let rounds = hosts.next_power_of_two().ilog2() as usize;
        assert_eq!(network.received_max(), rounds * message.len());
        // Small sets have attached words: 512 bytes at most.
        assert!(message.len() < 240 + 512, "{} bytes", message.len());
    }
}

#[test]
fn a_host_that_sends_invalid_states_is_named_by_those_that_receive_them() {
    type Modify = fn(&mut Vec<u8>);
    let modifications: [(Modify, _); 4] = [
        (
            |message| message.truncate(40),
            "a block of cycle 1, version 4, 71 words, where",
        ),
        (
            |message| message[0] = 9,
            "a block of cycle 9, version 4, 71 words, where",
        ),
        (|message| message[24] = 128, "status bits 0x80"),
        (|message| message.push(0), "a partial state of"),
    ];
    for (modify, problem) in modifications {
        let mut network = Network::new(6, Costs::default());
        network.set_hostile(4, Box::new(modify));
        for (host, state) in exchange(&network, 6).into_iter().enumerate() {
            let invalid = state.err().expect("no host has a result");
            assert_eq!(invalid.host, 4, "host {host}");
            assert!(invalid.problem.starts_with(problem), "{}", invalid.problem);
        }
    }
}

/// Simulates a cycle in which all tensors are cached.
fn simulate(hosts: usize, measured: &Measured) -> Estimate {
    let network = Network::new(hosts, measured.network());
    let mut states = exchange(&network, hosts);
    let state = states[0].as_mut().expect("no host is hostile");
    let attached_bytes = match hosts {
        1 => 0, // only read if they are used
        _ => 8 * attached_words(hosts * PER_HOST),
    };
    let block_bytes = measured.block_bytes + attached_bytes;
    let state_bytes = state.message().len();
    let in_host = (PER_HOST - 1) * block_bytes;
    let combined_ns = measured.local_ns(in_host) + PER_HOST as f64 * measured.add_ns;
    if hosts == 1 {
        return Estimate {
            latency_ns: combined_ns,
            bytes: in_host,
            bytes_of_most: in_host,
        };
    }
    let handed_out_ns = measured.local_ns(state_bytes) + measured.adopt_ns;
    Estimate {
        latency_ns: combined_ns + network.now_ns() + handed_out_ns,
        bytes: in_host + network.received_max(),
        bytes_of_most: state_bytes,
    }
}

/// Measures how long rank 0 computes when all tensors are new, ns.
fn coordinate(ranks: usize, list: &RequestList) -> f64 {
    let mut frame = Vec::new();
    encode(list, &mut frame).expect("encodable");
    let began = Instant::now();
    let lists = (0..ranks).map(|_| decode(&frame).expect("as encoded"));
    let mut coordinator = Coordinator::new((0..ranks).collect());
    let cache = ResponseCache::new(1024, 1024);
    let answer = coordinator.answer(lists.collect(), &cache, |_| false, &mut Vec::new());
    assert_eq!(answer.expect("valid").responses.len(), TENSORS);
    began.elapsed().as_nanos() as f64
}

/// The requests of a rank whose tensors are all new.
fn requests() -> RequestList {
    let request = |number: usize| Request {
        name: format!("model.layer{}.{}.conv.weight", number % 16, number).into(),
        params: Params::plain(
            OpKind::Allreduce,
            Dtype::F32,
            [64, 64, 3, 3].into_iter().collect(),
        ),
        ready_us: 1_000_000,
    };
    RequestList {
        requests: (0..TENSORS).map(request).collect(),
    }
}

/// Measures the costs and prints the table as JSON, line by line.
#[test]
#[ignore = "a measurement; scripts/bench-scale runs it with optimization"]
fn table() {
    let measured = costs::measure();
    println!("scale: {}", measured.json());
    let list = requests();
    let mut frame = Vec::new();
    encode(&list, &mut frame).expect("encodable");
    for ranks in [8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 10_240] {
        let hosts = ranks / PER_HOST;
        let job = models::Job {
            hosts,
            per_host: PER_HOST,
            words: WORDS,
            request_bytes: frame.len(),
        };
        let rows = [
            ("ronde", simulate(hosts, &measured)),
            ("former", job.former(&measured)),
            ("horovod", job.horovod(&measured, 1)),
            ("horovod_invalid", job.horovod(&measured, 2)),
            ("ronde_new", job.requests_of_ronde(&measured)),
            ("horovod_new", job.requests_of_horovod(&measured)),
        ];
        let rows: Vec<String> = rows
            .iter()
            .map(|(name, estimate)| format!("\"{name}\": {}", estimate.json()))
            .collect();
        println!(
            "scale: {{\"ranks\": {ranks}, \"hosts\": {hosts}, \"coordinator_us\": {:.1}, {}}}",
            coordinate(ranks, &list) / 1e3,
            rows.join(", ")
        );
    }
}
