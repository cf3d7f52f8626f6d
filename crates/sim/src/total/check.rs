//! The promises of members of a total order, checked at the end of a run.

use std::collections::BTreeMap;

use ricochet_core::NodeId;
use ricochet_core::order::{OrderNews, Total};
use thiserror::Error;

use super::world::{Item, World};
use super::{TotalOutcome, TotalScenario};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// Two members delivered differently.
    #[error("number {number}: node {one} delivered {first}, node {other} {second}")]
    Differs {
        /// The number.
        number: u64,
        /// A member.
        one: usize,
        /// Another member.
        other: usize,
        /// Delivery of the one.
        first: String,
        /// Delivery of the other.
        second: String,
    },
    /// A member delivered numbers out of order.
    #[error("node {at}: expected number {expected}, saw {seen}")]
    OutOfOrder {
        /// The member.
        at: usize,
        /// The number that should have come.
        expected: u64,
        /// The number that came.
        seen: u64,
    },
    /// The messages of a sender came out of order.
    #[error("node {at}: sender {sender}: message {seq} came after {before}")]
    OutOfStream {
        /// The member.
        at: usize,
        /// The sender.
        sender: NodeId,
        /// The later delivery.
        seq: u32,
        /// The earlier delivery.
        before: u32,
    },
    /// A member that was never cut off learned that it had delivered otherwise.
    #[error("node {at} was never cut off, and its order broke: {news}")]
    Broken {
        /// The member.
        at: usize,
        /// The news.
        news: String,
    },
    /// Two parts of a group that was cut both go on.
    #[error("nodes {one} and {other} are cut off from each other, and both deliver messages")]
    TwoSides {
        /// A member.
        one: usize,
        /// A member of another part.
        other: usize,
    },
    /// The members do not go on although a majority lives.
    #[error("node {at} does not go on: {state}")]
    Stuck {
        /// The member.
        at: usize,
        /// Its state.
        state: String,
    },
    /// A message is neither delivered nor reported.
    #[error("node {at}: message {seq} of node {from} was neither delivered nor reported as lost")]
    Unaccounted {
        /// The member.
        at: usize,
        /// The sender.
        from: usize,
        /// Its sequence number.
        seq: u32,
    },
}

/// The order in the view of a member: by number, the items that it has not taken back.
#[derive(Debug, Default)]
struct View {
    items: BTreeMap<u64, (Item, u64)>,
    broken: Vec<OrderNews>,
    missed: Vec<OrderNews>,
}

/// Checks a run.
pub(super) fn check(scenario: &TotalScenario, world: &World) -> Result<TotalOutcome, Violation> {
    let views: Vec<View> = (0..world.len()).map(|at| view(world, at)).collect::<Result<_, _>>()?;
    let members = world.members();
    for (at, view) in views.iter().enumerate() {
        check_streams(at, view)?;
        let missed = view.missed.first().filter(|_| scenario.is_connected());
        let broken = view.broken.first().filter(|_| scenario.safe || scenario.is_connected());
        if let Some(news) = broken.or(missed) {
            return Err(Violation::Broken { at, news: format!("{news:?}") });
        }
    }
    for (one, first) in views.iter().enumerate() {
        for (other, second) in views.iter().enumerate().skip(one + 1) {
            // A member that crashed, left or is cut off has no occasion to learn that it delivered otherwise.
            let both_live = members.contains(&one) && members.contains(&other);
            if scenario.safe || both_live {
                agree(one, first, other, second)?;
            }
        }
    }
    let is_alive = members.iter().all(|&at| is_at_end(world, at, &members));
    let harmless = scenario.faults.iter().all(|(_, fault)| !matches!(fault, super::Fault::Crash(_)));
    let begun = members.iter().any(|&at| world.total(at).is_some_and(|total| total.status().epoch.is_some()));
    if harmless
        && begun
        && let Some(&at) = members.iter().find(|&&at| !is_at_end(world, at, &members))
    {
        return Err(Violation::Stuck { at, state: format!("{:?}", world.total(at).map(Total::status)) });
    }
    if is_alive {
        check_complete(world, &views)?;
    }
    Ok(outcome(world, &views, is_alive))
}

/// Reads what a member delivered.
fn view(world: &World, at: usize) -> Result<View, Violation> {
    let mut view = View::default();
    let mut next = None;
    for &item in world.trace(at) {
        let (number, count) = match item {
            Item::News(OrderNews::Begins { number }) => {
                next = Some(number);
                continue;
            }
            Item::News(news @ OrderNews::Broken { from, continues, .. }) => {
                view.items.retain(|&number, _| number < from);
                view.broken.push(news);
                next = Some(continues);
                continue;
            }
            Item::News(news @ OrderNews::Missed { continues, .. }) => {
                view.missed.push(news);
                next = Some(continues);
                continue;
            }
            Item::News(_) => continue,
            Item::Message(number, sender, seq, _) => (number, packets(world, sender, seq)),
            Item::Lost(number, .., count) => (number, count),
        };
        if let Some(expected) = next.filter(|&expected| expected != number) {
            return Err(Violation::OutOfOrder { at, expected, seen: number });
        }
        next = Some(number + count);
        view.items.insert(number, (item, count));
    }
    Ok(view)
}

fn packets(world: &World, sender: NodeId, seq: u32) -> u64 {
    let sent = world.sent().iter().find(|&&(from, first, _)| (from as u32, first) == (sender.0, seq));
    sent.map_or(1, |&(.., packets)| packets.into())
}

/// Checks that two members agree wherever both have delivered. Lost packets may be reported in several parts.
fn agree(one: usize, first: &View, other: usize, second: &View) -> Result<(), Violation> {
    let differs = |number: u64, a: Item, b: Item| Violation::Differs {
        number,
        one,
        other,
        first: format!("{a:?}"),
        second: format!("{b:?}"),
    };
    for (&number, &(item, count)) in &first.items {
        for (&at, &(seen, _)) in second.items.range(number..number + count) {
            let same = match (item, seen) {
                (Item::Lost(_, a, first, _), Item::Lost(_, b, second, _)) => {
                    a == b && u64::from(second.wrapping_sub(first)) == at - number
                }
                _ => item == seen,
            };
            if !same {
                return Err(differs(number, item, seen));
            }
        }
    }
    Ok(())
}

fn check_streams(at: usize, view: &View) -> Result<(), Violation> {
    let mut newest: BTreeMap<NodeId, u32> = BTreeMap::new();
    for (item, _) in view.items.values() {
        let (Item::Message(_, sender, seq, _) | Item::Lost(_, sender, seq, _)) = *item else { continue };
        if let Some(before) = newest.insert(sender, seq)
            && before >= seq
        {
            return Err(Violation::OutOfStream { at, sender, seq, before });
        }
    }
    Ok(())
}

/// Returns whether a member has delivered everything that all others have.
fn is_at_end(world: &World, at: usize, members: &[usize]) -> bool {
    let status = |at: usize| world.total(at).map(Total::status);
    let Some(own) = status(at).filter(|own| own.epoch.is_some() && !own.stalled) else { return false };
    let same = |&other: &usize| {
        status(other).is_some_and(|other| other.epoch == own.epoch && other.next == own.next)
    };
    own.delivered == own.next && members.iter().all(same)
}

/// Checks that the members that were there from the beginning know the fate of every message of a node that
/// still runs.
fn check_complete(world: &World, views: &[View]) -> Result<(), Violation> {
    let running = world.running();
    for at in world.members() {
        let view = &views[at];
        let from_start = matches!(world.trace(at).first(), Some(Item::News(OrderNews::Begins { number: 0 })));
        if !from_start || !view.broken.is_empty() || !view.missed.is_empty() {
            continue;
        }
        for &(from, seq, _) in world.sent().iter().filter(|(from, ..)| running.contains(from)) {
            let sender = NodeId(from as u32);
            let is_it = |item: &Item| match *item {
                Item::Message(_, of, at, _) => (of, at) == (sender, seq),
                Item::Lost(_, of, first, count) => of == sender && u64::from(seq.wrapping_sub(first)) < count,
                Item::News(_) => false,
            };
            // Messages before the first one of a stream that came are not awaited.
            let first = view.items.values().filter_map(|(item, _)| match *item {
                Item::Message(_, of, at, _) if of == sender => Some(at),
                _ => None,
            });
            let is_known = first.min().is_some_and(|first| first < seq);
            let is_found = view.items.values().any(|(item, _)| is_it(item));
            if is_known && !is_found && world.total(from).is_some() {
                return Err(Violation::Unaccounted { at, from, seq });
            }
        }
    }
    Ok(())
}

fn outcome(world: &World, views: &[View], is_alive: bool) -> TotalOutcome {
    let items = || views.iter().flat_map(|view| view.items.values());
    let lost = items().filter_map(|&(item, count)| matches!(item, Item::Lost(..)).then_some(count));
    let epochs = world.members().into_iter().filter_map(|at| world.total(at));
    TotalOutcome {
        delivered: items().filter(|(item, _)| matches!(item, Item::Message(..))).count(),
        lost: lost.sum::<u64>() as usize,
        broken: views.iter().map(|view| view.broken.len()).sum(),
        epochs: epochs.map(|total| total.counts().epochs).max().unwrap_or(0),
        is_alive,
    }
}
