//! Gateways as child processes at the two ends of a laboratory link.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context as _, bail};
use ipnet::IpNet;
use keyfile::KeyText;
use maelstrom::config::Schedule;
use maelstrom::status::{self, Status};
use netlab::Namespace;
use netlab::namespace::Child;
use netlab::topology::{TwoSites, WAN};
use nix::sys::signal::Signal;

use crate::fresh::make_new;

/// Number of lines of a gateway's log that an error contains: the last ones, or those of a panic.
const LAST_LINES: usize = 3;

/// Settings that differ between experiments.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Schedule of repairs.
    pub schedule: Schedule,
    /// Whether repairs wait for later packets.
    pub delayed: bool,
    /// Maximum wait of a part-filled bin or block.
    pub max_delay_ms: u16,
    /// `auto`, `ebpf` or `packet`.
    pub tap: &'static str,
    /// `auto`, `wan` or `tun`.
    pub injection: &'static str,
    /// Whether gateways turn by ticks at a high packet rate.
    pub tick: bool,
    /// Connections that end at the gateways; none if absent.
    pub split: Option<SplitSetting>,
    /// How packets travel in a tunnel; they travel beside the repairs if absent.
    pub tunnel: Option<TunnelSetting>,
}

/// Tunnel mode of both gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelSetting {
    /// Longest time for which a packet waits for others, in microseconds.
    pub aggregate_us: u16,
    /// Whether packets take other routes after a gateway has been killed.
    pub fails_open: bool,
}

/// Split mode of both gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitSetting {
    /// Port of the servers.
    pub port: u16,
    /// Whether clients are answered when their servers have answered.
    pub is_late: bool,
    /// Buffer for all connections, such as `64MiB`.
    pub buffer: String,
    /// Congestion control of the carriers.
    pub congestion: String,
}

impl Default for Setting {
    /// Returns a gateway's defaults.
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            delayed: true,
            max_delay_ms: 20,
            tap: "auto",
            injection: "auto",
            tick: true,
            split: None,
            tunnel: None,
        }
    }
}

impl Setting {
    /// Returns a gateway's defaults, but for the code: layered (8; 1,11,19), which does not change with the
    /// losses of the link.
    pub fn layered() -> Self {
        Self { schedule: Schedule::layered(), ..Self::default() }
    }

    /// Returns a gateway's defaults in tunnel mode. The gateways must know no other way to each other's hosts
    /// ([`part`](super::part)).
    pub fn tunnel() -> Self {
        Self { tunnel: Some(TunnelSetting::default()), ..Self::default() }
    }
}

/// One end of the link.
#[derive(Clone, Debug)]
pub struct End<'a> {
    /// Namespace of the gateway.
    pub namespace: &'a Namespace,
    /// Interface toward the link.
    pub wan: &'a str,
    /// Address of the repair channel.
    pub listen: SocketAddr,
    /// Networks of the site.
    pub networks: Vec<IpNet>,
}

impl<'a> End<'a> {
    /// Returns both ends of two sites, with the repair channel over IPv4.
    pub fn of(sites: &'a TwoSites) -> [Self; 2] {
        [&sites.a, &sites.b].map(|site| Self {
            namespace: &site.gateway,
            wan: WAN,
            listen: SocketAddr::new(site.wan_v4(), 4700),
            networks: site.networks().to_vec(),
        })
    }
}

/// Two running gateways. Dropping this ends both and removes their files.
pub struct GatewayPair {
    program: PathBuf,
    directory: PathBuf,
    shells: [Shell; 2],
    children: [Option<Child>; 2],
}

/// A configuration file around its section `[code]`.
struct Shell {
    before: String,
    after: String,
}

impl GatewayPair {
    /// Starts `program gateway run` at both ends and waits until each has found the other.
    ///
    /// # Errors
    /// If a gateway ends or does not find its peer; the error contains the logs.
    pub fn start(program: &Path, ends: &[End<'_>; 2], setting: &Setting) -> anyhow::Result<Self> {
        Self::start_with_code(program, ends, setting, &code_lines(setting))
    }

    /// Starts like [`GatewayPair::start`], with `code` as the lines of the section `[code]` of both files.
    ///
    /// # Errors
    /// If a gateway refuses its file, ends or does not find its peer; the error contains the logs.
    pub fn start_with_code(
        program: &Path,
        ends: &[End<'_>; 2],
        setting: &Setting,
        code: &str,
    ) -> anyhow::Result<Self> {
        let mut pair = Self::prepare_with_code(program, ends, setting, code)?;
        for (side, end) in ends.iter().enumerate() {
            pair.launch(side, end.namespace)?;
        }
        pair.wait_until_up(Duration::from_secs(30))?;
        if setting.split.is_some() {
            pair.wait_until_splitting(Duration::from_secs(30))?;
        }
        Ok(pair)
    }

    /// Writes the files of both gateways, and starts none.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn prepare(program: &Path, ends: &[End<'_>; 2], setting: &Setting) -> anyhow::Result<Self> {
        Self::prepare_with_code(program, ends, setting, &code_lines(setting))
    }

    fn prepare_with_code(
        program: &Path,
        ends: &[End<'_>; 2],
        setting: &Setting,
        code: &str,
    ) -> anyhow::Result<Self> {
        let directory = make_directory()?;
        let shells = [0, 1].map(|side| shell(&directory, ends, side, setting));
        let pair = Self { program: program.to_owned(), directory, shells, children: [None, None] };
        let key = KeyText::generate().context("drawing a key")?;
        key.write_new(&pair.directory.join("peer.key")).context("writing a key file")?;
        for side in 0..2 {
            pair.write_config(side, code)?;
        }
        Ok(pair)
    }

    fn write_config(&self, side: usize, code: &str) -> anyhow::Result<()> {
        let Shell { before, after } = &self.shells[side];
        fs::write(self.config(side), format!("{before}[code]\n{code}\n{after}"))
            .context("writing a gateway's configuration")
    }

    /// Replaces the lines of one side's section `[code]` and asks its gateway to reload the file.
    ///
    /// # Errors
    /// If the file cannot be written, or no gateway runs on this side.
    pub fn reload_with_code(&mut self, side: usize, code: &str) -> anyhow::Result<()> {
        self.write_config(side, code)?;
        let child = self.children[side].as_mut().context("expected a gateway on this side, saw none")?;
        child.signal(Signal::SIGHUP).context("asking a gateway to reload")
    }

    /// Starts the gateway of one side, also after [`GatewayPair::kill`].
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn launch(&mut self, side: usize, namespace: &Namespace) -> anyhow::Result<()> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_file(side))
            .context("opening a log")?;
        let mut command = Command::new(&self.program);
        command.args(["gateway", "run", "--config"]).arg(self.config(side));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child =
            namespace.spawn(command).with_context(|| format!("starting {}", self.program.display()))?;
        self.children[side] = Some(child);
        Ok(())
    }

    /// Waits until each gateway reports that its peer is up.
    ///
    /// # Errors
    /// After `patience`, or as soon as a gateway has ended; the error contains the logs.
    pub fn wait_until_up(&mut self, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let up = |side| self.status(side).is_ok_and(|status| status.peers.iter().all(|peer| peer.up));
            if up(0) && up(1) {
                return Ok(());
            }
            self.none_has_ended()?;
            sleep(Duration::from_millis(20));
        }
        bail!("the gateways did not find each other within {patience:?}; their logs:\n{}", self.logs())
    }

    /// Waits until each gateway splits connections.
    ///
    /// # Errors
    /// As of [`GatewayPair::wait_until_up`].
    pub fn wait_until_splitting(&mut self, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let splits = |side| {
                let split = self.status(side).ok().and_then(|status| status.split);
                split.is_some_and(|split| split.sites.iter().all(|site| site.is_splitting))
            };
            if splits(0) && splits(1) {
                return Ok(());
            }
            self.none_has_ended()?;
            sleep(Duration::from_millis(20));
        }
        bail!("the gateways split no connections within {patience:?}; their logs:\n{}", self.logs())
    }

    fn none_has_ended(&mut self) -> anyhow::Result<()> {
        for side in 0..2 {
            let Some(child) = &mut self.children[side] else { continue };
            if let Some(status) = child.try_wait().context("checking a gateway")? {
                bail!("the gateway of side {side} ended with {status}; logs:\n{}", self.logs());
            }
        }
        Ok(())
    }

    /// Returns the status that the gateway of one side reports.
    ///
    /// # Errors
    /// If it does not answer; the error contains the end of its log.
    pub fn status(&self, side: usize) -> anyhow::Result<Status> {
        status::read(&self.control(side)).with_context(|| {
            let log = fs::read_to_string(self.log_file(side)).unwrap_or_default();
            format!("reading a gateway's status, whose log ends with: {}", last_lines(&log).join(" / "))
        })
    }

    /// Kills the gateway of one side, without cleanup.
    ///
    /// # Errors
    /// If none runs.
    pub fn kill(&mut self, side: usize) -> anyhow::Result<()> {
        // Dropping a child kills it and waits for its end.
        self.children[side].take().context("expected a gateway on this side, saw none").map(drop)
    }

    /// Returns the process of one side.
    pub fn child(&mut self, side: usize) -> Option<&mut Child> {
        self.children[side].as_mut()
    }

    /// Asks both gateways to stop and waits until they have.
    ///
    /// # Errors
    /// If one does not end by itself, or with an error.
    pub fn stop(mut self) -> anyhow::Result<()> {
        for side in 0..2 {
            let Some(mut child) = self.children[side].take() else { continue };
            let ended = child.terminate(Duration::from_secs(10)).context("stopping a gateway")?;
            if !ended.success() {
                bail!("a gateway ended with {ended}; logs:\n{}", self.logs());
            }
        }
        Ok(())
    }

    /// Returns the configuration file of one side, to be changed before a reload.
    pub fn config(&self, side: usize) -> PathBuf {
        self.directory.join(format!("gateway-{side}.toml"))
    }

    fn control(&self, side: usize) -> PathBuf {
        self.directory.join(format!("gateway-{side}.sock"))
    }

    fn log_file(&self, side: usize) -> PathBuf {
        self.directory.join(format!("gateway-{side}.log"))
    }

    /// Returns the logs of both gateways.
    pub fn logs(&self) -> String {
        (0..2).fold(String::new(), |mut logs, side| {
            let log = fs::read_to_string(self.log_file(side)).unwrap_or_default();
            let _ = writeln!(logs, "-- side {side}\n{log}");
            logs
        })
    }
}

impl Drop for GatewayPair {
    fn drop(&mut self) {
        self.children = [None, None];
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl TunnelSetting {
    /// Returns the lines of tunnel mode in `[[peer]]`.
    fn lines(&self) -> String {
        let fail = if self.fails_open { "open" } else { "closed" };
        format!("aggregate_us = {}\nfail = \"{fail}\"\n", self.aggregate_us)
    }
}

impl SplitSetting {
    /// Returns the section `[split]`, and the lines of split mode in `[[peer]]` and `[gateway]`. A gateway
    /// has the first address of its site.
    fn lines(&self, own: &End<'_>, far: &End<'_>) -> (String, String, String) {
        let Self { port, is_late, buffer, congestion } = self;
        let accept = if *is_late { "late" } else { "early" };
        let door = |end: &End<'_>| end.networks.iter().find_map(|network| network.hosts().next());
        let door = |end| SocketAddr::new(door(end).unwrap_or(end.listen.ip()), 4701);
        let networks: Vec<_> = own.networks.iter().map(|network| format!("\"{network}\"")).collect();
        let section = format!(
            "[split]\nlisten = \"{}\"\nports = [{port}]\naccept = \"{accept}\"\nbuffer = \"{buffer}\"\n\
             congestion = \"{congestion}\"\n\n",
            door(own)
        );
        let carrier = format!("carrier = \"{}\"\n", door(far));
        (section, carrier, format!("local_networks = [{}]\n", networks.join(", ")))
    }
}

pub(super) fn make_directory() -> anyhow::Result<PathBuf> {
    let (directory, ()) = make_new(&env::temp_dir(), "undrop-lab", "", |path| fs::create_dir(path))?;
    Ok(directory)
}

/// Returns the lines of the section `[code]`.
fn code_lines(setting: &Setting) -> String {
    let schedule = match &setting.schedule {
        Schedule::Auto => "scheme = \"auto\"".to_owned(),
        Schedule::Layered { r, interleaves } => {
            format!("scheme = \"layered\"\nr = {r}\ninterleaves = {interleaves:?}")
        }
        Schedule::ReedSolomon { r, c, interleave } => {
            format!("scheme = \"reed-solomon\"\nr = {r}\nc = {c}\ninterleave = {interleave}")
        }
        Schedule::Sliding { rate, window, density } => {
            format!("scheme = \"sliding\"\nrate = \"{rate}\"\nwindow = {window}\ndensity = {density}")
        }
    };
    // A sliding window has no repairs that could wait.
    let delayed = match &setting.schedule {
        Schedule::Auto | Schedule::Sliding { .. } => String::new(),
        Schedule::Layered { .. } | Schedule::ReedSolomon { .. } => format!("delayed = {}\n", setting.delayed),
    };
    format!("{schedule}\n{delayed}max_delay_ms = {}\n", setting.max_delay_ms)
}

fn shell(directory: &Path, ends: &[End<'_>; 2], side: usize, setting: &Setting) -> Shell {
    let (own, far) = (&ends[side], &ends[1 - side]);
    let networks: Vec<_> = far.networks.iter().map(|network| format!("\"{network}\"")).collect();
    let (split, of_peer, local) =
        setting.split.as_ref().map_or_else(Default::default, |split| split.lines(own, far));
    let in_tunnel = setting.tunnel.as_ref().map(TunnelSetting::lines).unwrap_or_default();
    let mode = if setting.tunnel.is_some() { "tunnel" } else { "passive" };
    let before = format!(
        "[gateway]\n{local}mode = \"{mode}\"\nwan = \"{}\"\nlisten = \"{}\"\ncontrol = \"{}\"\ntap = \"{}\"\n\
         injection = \"{}\"\ntick = {}\n\n",
        own.wan,
        own.listen,
        directory.join(format!("gateway-{side}.sock")).display(),
        setting.tap,
        setting.injection,
        setting.tick,
    );
    let after = format!(
        "{split}[[peer]]\n{of_peer}{in_tunnel}address = \"{}\"\nnetworks = [{}]\nkey_file = \"peer.key\"\n",
        far.listen,
        networks.join(", "),
    );
    Shell { before, after }
}

/// Returns the last lines of a log, or the first ones of a panic, whose last lines are its backtrace.
fn last_lines(log: &str) -> Vec<&str> {
    let lines: Vec<&str> = log.lines().collect();
    let panic = lines.iter().position(|line| line.contains("panicked at "));
    let start = panic.unwrap_or(lines.len().saturating_sub(LAST_LINES));
    lines[start..].iter().take(LAST_LINES).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_a_killed_process_left_is_no_obstacle() {
        let old = env::temp_dir().join(format!("undrop-lab-{}-0", std::process::id()));
        fs::create_dir(&old).unwrap();
        let made = make_directory();
        fs::remove_dir(&old).unwrap();
        let made = made.unwrap();
        assert_ne!(made, old);
        fs::remove_dir(&made).unwrap();
    }

    #[test]
    fn the_end_of_a_log_shows_a_panic_in_place_of_its_backtrace() {
        assert_eq!(last_lines("a\nb\nc\nd\n"), ["b", "c", "d"]);
        assert!(last_lines("").is_empty());
        let panic = "a\nthread 'main' (7) panicked at src/a.rs:1:2:\nindex out of range\nstack backtrace:\n0: x\n1: y";
        assert_eq!(last_lines(panic)[1], "index out of range");
    }
}
