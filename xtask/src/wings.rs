//! The law of the two wings: the product does not depend on the laboratory.
//!
//! Read from `cargo metadata`: normal dependencies only, since tests of the product use the laboratory.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::process::cargo;

/// Crates that show that the product works. Every other member but [`TOOLS`] is part of the product.
const LABORATORY: [&str; 6] = ["figures", "netlab", "sim", "simnet", "stage", "undrop-lab"];

/// Members that are neither.
const TOOLS: [&str; 3] = ["manual", "testkit", "xtask"];

/// Crates of the laboratory that stay pure, with what they must never reach.
const PURE: [&str; 2] = ["simnet", "sim"];
const IMPURE: [&str; 3] = ["netio", "tokio", "aya"];

/// Normal dependencies by package; members of the workspace apart.
#[derive(Debug, Default)]
struct Graph {
    members: BTreeSet<String>,
    needs: BTreeMap<String, BTreeSet<String>>,
}

/// Returns a sentence for each breach of the law.
///
/// # Errors
/// If cargo cannot tell the dependencies.
pub(crate) fn complaints() -> anyhow::Result<Vec<String>> {
    let output = cargo(&["metadata", "--format-version", "1", "--locked"])
        .output()
        .context("cannot run `cargo metadata`")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(breaches(&Graph::read(&serde_json::from_slice(&output.stdout)?)))
}

fn breaches(graph: &Graph) -> Vec<String> {
    let is_product =
        |name: &str| !LABORATORY.contains(&name) && !TOOLS.contains(&name) && graph.members.contains(name);
    let mut complaints = Vec::new();
    for name in graph.members.iter().filter(|name| is_product(name)) {
        let reached = graph.reached(name);
        for other in LABORATORY.iter().chain(&TOOLS).filter(|other| reached.contains(**other)) {
            complaints.push(format!("{name}: a product crate must not depend on {other} of the laboratory"));
        }
    }
    for name in PURE {
        let reached = graph.reached(name);
        for other in IMPURE.iter().filter(|other| reached.contains(**other)) {
            complaints.push(format!("{name}: a pure crate must not reach {other}"));
        }
    }
    complaints
}

impl Graph {
    fn read(metadata: &Value) -> Self {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut graph = Self::default();
        let names: BTreeMap<String, String> = list(&metadata["packages"])
            .iter()
            .map(|package| (text(&package["id"]), text(&package["name"])))
            .collect();
        let name = |id: &Value| names.get(&text(id)).cloned().unwrap_or_default();
        graph.members = list(&metadata["workspace_members"]).iter().map(name).collect();
        for node in list(&metadata["resolve"]["nodes"]) {
            let is_normal =
                |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let dependencies = list(&node["deps"]);
            let normal = dependencies.iter().filter(|dependency| is_normal(dependency));
            let needs = normal.map(|dependency| name(&dependency["pkg"]));
            graph.needs.entry(name(&node["id"])).or_default().extend(needs);
        }
        graph
    }

    /// All packages that `from` needs, directly or not.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(name) = open.pop() {
            for needed in self.needs.get(name).into_iter().flatten() {
                if reached.insert(needed.as_str()) {
                    open.push(needed);
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in edges {
            graph.needs.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            for name in [from, to] {
                if **name != *"tokio" {
                    graph.members.insert((*name).to_owned());
                }
            }
        }
        graph
    }

    #[test]
    fn a_product_crate_may_not_reach_the_laboratory_through_another() {
        let breaches = breaches(&graph(&[("undrop", "maelstrom"), ("maelstrom", "netlab")]));
        assert_eq!(breaches.len(), 2, "{breaches:?}");
        assert!(breaches[0].starts_with("maelstrom:"));
    }

    #[test]
    fn simulations_stay_pure() {
        let breaches = breaches(&graph(&[("sim", "simnet"), ("simnet", "loss"), ("loss", "tokio")]));
        assert_eq!(
            breaches,
            ["simnet: a pure crate must not reach tokio", "sim: a pure crate must not reach tokio"]
        );
    }

    #[test]
    fn the_laboratory_may_use_the_product() {
        assert!(
            breaches(&graph(&[("undrop-lab", "undrop"), ("netlab", "netio"), ("stage", "netlab")]))
                .is_empty()
        );
    }

    #[test]
    fn only_normal_dependencies_count() {
        let metadata = serde_json::json!({
            "packages": [{"id": "1", "name": "netio"}, {"id": "2", "name": "netlab"}],
            "workspace_members": ["1", "2"],
            "resolve": {"nodes": [
                {"id": "1", "deps": [{"pkg": "2", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "2", "deps": [{"pkg": "1", "dep_kinds": [{"kind": null}, {"kind": "dev"}]}]},
            ]},
        });
        let graph = Graph::read(&metadata);
        assert!(graph.reached("netio").is_empty());
        assert_eq!(graph.reached("netlab"), BTreeSet::from(["netio"]));
    }
}
