//! Circles are found where there are some, and looking for them costs little.

use proptest::prelude::*;

use super::*;

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn graph(edges: &[(&str, &[&str])]) -> Waits {
    let mut waits = Waits::default();
    for (id, others) in edges {
        waits.insert(id, &ids(others));
    }
    waits
}

#[test]
fn circles_are_found_and_chains_are_not() {
    let waits = graph(&[("b", &["free", "c"]), ("c", &["d"]), ("k", &["l"])]);
    for (id, others, circle) in [
        ("a", &["b"][..], None),
        ("d", &["b"], Some(&["d", "b", "c", "d"][..])),
        ("d", &["c", "k"], Some(&["d", "c", "d"])),
        ("l", &["free", "k"], Some(&["l", "k", "l"])),
        ("c", &["c"], Some(&["c", "c"])),
        ("d", &["free", "k"], None),
        ("free", &["d"], None),
        ("free", &["b"], Some(&["free", "b", "free"])),
    ] {
        let found = waits.circle(id, &ids(others));
        assert_eq!(found, circle.map(ids), "{id} → {others:?}");
    }
}

#[test]
fn who_has_gone_waits_for_nobody() {
    let mut waits = graph(&[("b", &["c"]), ("c", &["d"])]);
    waits.insert("b", &ids(&["e"]));
    assert_eq!(waits.circle("d", &ids(&["b"])), None);
    assert_eq!(waits.waiting_for("e").collect::<Vec<_>>(), ["b"]);
    waits.remove("c");
    assert_eq!(waits.circle("d", &ids(&["c"])), None);
    assert_eq!(waits.waiting_for("d").count(), 0);
    waits.remove("b");
    assert!(waits.waits_for.is_empty() && waits.waited_by.is_empty());
}

/// How many neighbours were looked at for a chain whose links come in this order.
fn cost(order: impl Iterator<Item = usize>) -> usize {
    let mut waits = Waits::default();
    let mut cost = 0;
    for n in order {
        let (id, other) = (n.to_string(), ids(&[&(n + 1).to_string()]));
        // The same search, counted.
        let others: Vec<&str> = other.iter().map(String::as_str).collect();
        let (mut down, mut up) = (Search::from(&others), Search::from(&[id.as_str()]));
        loop {
            let step = if down.cost <= up.cost {
                let node = down.open.pop();
                node.map(|node| (&mut down, waits.below(node), node))
            } else {
                let node = up.open.pop();
                node.map(|node| (&mut up, waits.above(node), node))
            };
            let Some((side, next, node)) = step else {
                break;
            };
            for neighbour in next {
                side.cost += 1;
                side.reach(neighbour, node);
            }
        }
        cost += down.cost + up.cost;
        assert_eq!(waits.circle(&id, &other), None);
        waits.insert(&id, &other);
    }
    cost
}

#[test]
fn a_chain_costs_little_in_whatever_order_its_links_come() {
    const LINKS: usize = 20_000;
    assert!(cost(0..LINKS) <= 2 * LINKS);
    assert!(cost((0..LINKS).rev()) <= 2 * LINKS);
    // Every second one first, then those that join them; and a walk that jumps about.
    let halves = (0..LINKS).step_by(2).chain((1..LINKS).step_by(2));
    assert!(cost(halves) <= 8 * LINKS);
    let jumps = (0..LINKS).map(|n| (n * 7919) % LINKS);
    assert!(cost(jumps) <= 40 * LINKS);
}

#[test]
fn a_circle_of_a_whole_chain_is_told_whole() {
    let mut waits = Waits::default();
    for n in 0..50_000 {
        waits.insert(&n.to_string(), &ids(&[&(n + 1).to_string()]));
    }
    let circle = waits.circle("50000", &ids(&["0"])).unwrap();
    assert_eq!(circle.len(), 50_002);
    assert_eq!(
        (&circle[0], &circle[1]),
        (&"50000".to_owned(), &"0".to_owned())
    );
    assert_eq!(circle.last().unwrap(), "50000");
}

/// Whether `from` leads to `to`, by looking everywhere.
fn leads(edges: &[(usize, Vec<usize>)], from: usize, to: usize) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        if node == to {
            return true;
        }
        if seen.insert(node) {
            let next = edges.iter().filter(|(id, _)| *id == node);
            open.extend(next.flat_map(|(_, others)| others));
        }
    }
    false
}

proptest! {
    #[test]
    fn it_finds_a_circle_exactly_where_there_is_one(
        links in prop::collection::vec((0..12_usize, prop::collection::vec(0..12_usize, 0..4)), 0..40)
    ) {
        let mut waits = Waits::default();
        let mut edges: Vec<(usize, Vec<usize>)> = Vec::new();
        for (id, others) in links {
            if edges.iter().any(|(known, _)| *known == id) {
                waits.remove(&id.to_string());
                edges.retain(|(known, _)| *known != id);
                continue;
            }
            let named: Vec<String> = others.iter().map(ToString::to_string).collect();
            let circle = waits.circle(&id.to_string(), &named);
            let closes = others.iter().any(|other| leads(&edges, *other, id));
            prop_assert_eq!(circle.is_some(), closes);
            let Some(circle) = circle else {
                waits.insert(&id.to_string(), &named);
                edges.push((id, others));
                continue;
            };
            prop_assert_eq!(&circle[0], &id.to_string());
            prop_assert_eq!(circle.last(), circle.first());
            for pair in circle.windows(2) {
                let (from, to): (usize, usize) = (pair[0].parse().unwrap(), pair[1].parse().unwrap());
                let is_new = from == id && others.contains(&to);
                let is_old = edges.iter().any(|(known, of)| *known == from && of.contains(&to));
                prop_assert!(is_new || is_old, "{pair:?} is no wait");
            }
        }
    }
}
