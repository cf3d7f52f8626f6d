//! The page of the report: one HTML file that loads nothing.

use std::fmt::Write as _;

use maelstrom::losses::{Losses, PeerLosses};
use maelstrom::status::{EventStatus, FateStatus, MinuteStatus, Status};

use super::chart::{self, Line};

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:760px;margin:24px auto;padding:0 16px}\
h1{font-size:24px}h2{font-size:19px;margin-top:36px;border-top:1px solid #bbb;padding-top:12px}h3{font-size:15px;margin:20px 0 2px}\
table{border-collapse:collapse;width:100%}th,td{border-bottom:1px solid #ddd;padding:4px 6px;text-align:right;vertical-align:top}td{white-space:nowrap}.events td{white-space:normal}\
th:first-child,td:first-child,.events td,.events th{text-align:left}.legend,.note{color:#555;margin:2px 0}\
svg{max-width:100%;height:auto;font-size:12px}.grid{stroke:#ddd}.value{stroke-width:1.8;fill-opacity:.9}polyline{fill:none}\
.x{text-anchor:middle;fill:#555}.y{text-anchor:end;fill:#555}@media print{h2{break-before:page}}";

/// Milliseconds of the time that the report is about.
const SPAN_MS: u64 = 3_600_000;

/// Returns the page. `time` is that of the report, as a text.
pub(super) fn page(status: &Status, losses: &Losses, time: &str) -> String {
    let gateway = &status.gateway;
    let wan = escaped(&gateway.wans());
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Losses on {wan}</title><style>{STYLE}</style></head><body>\
         <h1>Losses on the link at {wan}</h1>"
    );
    let _ = write!(
        html,
        "<p>The last hour before {time}, as the gateway at this end measured it (undrop {}, running for {}). \
         Packets are counted one by one: a packet is lost if a repair that was sent with it names it and it has not \
         arrived.</p><p><strong>Now:</strong> {}</p>",
        escaped(&gateway.version),
        crate::gateway::duration(gateway.uptime_s),
        escaped(&status.health.text)
    );
    for peer in &losses.peers {
        html += &of_peer(peer);
    }
    html += &events(losses);
    html + "</body></html>\n"
}

fn of_peer(peer: &PeerLosses) -> String {
    let label = escaped(&peer.label());
    let mut html = format!("<h2>{label}</h2>");
    let hour: Vec<&MinuteStatus> = peer.course.iter().filter(|minute| minute.ago_ms < SPAN_MS).collect();
    if hour.is_empty() {
        html += "<p>No packets yet.</p>";
        return html;
    }
    let spans = || peer.minutes.iter().filter(|span| span.ago < 60);
    let longest = spans().map(|span| span.longest).max().unwrap_or(0);
    html += "<table><tr><th>direction</th><th>packets</th><th>lost</th><th>recovered</th><th>left to senders</th>\
             <th>stayed lost</th><th>longest burst</th></tr>";
    html +=
        &row(&format!("from {label}"), &sum(hour.iter().map(|minute| &minute.window.here)), Some(longest));
    html += &row(&format!("to {label}"), &sum(hour.iter().map(|minute| &minute.window.there)), None);
    html += "</table><p class=\"note\">Packets that a full queue dropped are left to their senders, so that these \
             slow down.</p>";
    let both = |value: fn(&FateStatus) -> Option<f64>| {
        [
            line(&format!("from {}", peer.label()), &hour, |minute| value(&minute.window.here)),
            line(&format!("to {}", peer.label()), &hour, |minute| value(&minute.window.there)),
        ]
    };
    html += &chart::lines("Packets lost on the link", " %", &both(|it| known(it, it.loss_percent)));
    html += &chart::lines("Packets that stayed lost", " %", &both(|it| known(it, it.residual_percent)));
    html += &chart::bars(
        &format!("Bursts of lost packets from {}, by the number of packets lost in a row", peer.label()),
        &bursts(peer),
    );
    let delay = |minute: &MinuteStatus| minute.window.recovery_delay_us.map(|us| us as f64 / 1e3);
    html += &chart::lines("Delay of recovered packets, median", " ms", &[line("", &hour, delay)]);
    let overhead = |minute: &MinuteStatus| {
        (minute.window.sent_bits_per_s > 0.0).then_some(minute.window.overhead_percent)
    };
    html += &chart::lines("Repairs sent, of the bytes of traffic", " %", &[line("", &hour, overhead)]);
    html
}

/// A share of packets, if there were any.
fn known(fates: &FateStatus, percent: f64) -> Option<f64> {
    (fates.packets > 0).then_some(percent)
}

fn line(name: &str, hour: &[&MinuteStatus], value: impl Fn(&MinuteStatus) -> Option<f64>) -> Line {
    let points = hour.iter().map(|minute| (minute.ago_ms as f64 / 60_000.0, value(minute)));
    Line { name: name.to_owned(), points: points.collect() }
}

fn sum<'f>(fates: impl Iterator<Item = &'f FateStatus>) -> FateStatus {
    fates.fold(FateStatus::default(), |sum, fates| FateStatus {
        packets: sum.packets + fates.packets,
        lost: sum.lost + fates.lost,
        recovered: sum.recovered + fates.recovered,
        left: sum.left + fates.left,
        residual: sum.residual + fates.residual,
        ..sum
    })
}

fn row(direction: &str, fates: &FateStatus, longest: Option<u32>) -> String {
    let percent = |count: u64| match (count, fates.packets) {
        (0, _) | (_, 0) => String::new(),
        (count, packets) => format!(" ({} %)", significant(100.0 * count as f64 / packets as f64)),
    };
    format!(
        "<tr><td>{direction}</td><td>{}</td><td>{}{}</td><td>{}</td><td>{}</td><td>{}{}</td><td>{}</td></tr>",
        grouped(fates.packets),
        grouped(fates.lost),
        percent(fates.lost),
        grouped(fates.recovered),
        grouped(fates.left),
        grouped(fates.residual),
        percent(fates.residual),
        longest.map(|longest| longest.to_string()).unwrap_or_default()
    )
}

/// A share with two digits that count.
fn significant(percent: f64) -> String {
    let decimals = (1.0 - percent.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{percent:.decimals$}")
}

/// A count with commas between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|part| str::from_utf8(part).ok()).collect();
    groups.join(",")
}

/// Bursts of the last hour by length.
fn bursts(peer: &PeerLosses) -> Vec<(String, u64)> {
    let mut bars: Vec<(u64, String, u64)> = Vec::new();
    for bucket in peer.minutes.iter().filter(|span| span.ago < 60).flat_map(|span| &span.bursts) {
        match bars.iter_mut().find(|(from, ..)| *from == bucket.from) {
            Some((.., count)) => *count += bucket.count,
            None => {
                let label = match bucket.to {
                    Some(to) if to == bucket.from => to.to_string(),
                    Some(to) => format!("{}–{to}", bucket.from),
                    None => format!("{}+", bucket.from),
                };
                bars.push((bucket.from, label, bucket.count));
            }
        }
    }
    bars.sort_unstable_by_key(|(from, ..)| *from);
    bars.into_iter().map(|(_, label, count)| (label, count)).collect()
}

/// The events of the last hour, the latest first: those of the peers that are described, and of the gateway
/// itself, which concern all peers.
fn events(losses: &Losses) -> String {
    let labels: Vec<String> = losses.peers.iter().map(PeerLosses::label).collect();
    let is_shown = |event: &&EventStatus| {
        event.ago_ms < SPAN_MS && event.peer.as_ref().is_none_or(|peer| labels.contains(peer))
    };
    let mut shown = losses.events.iter().rev().filter(is_shown).peekable();
    let mut html = "<h2>Events</h2>".to_owned();
    // Others were in the hour before the first one that is kept.
    let forgotten = losses.events.first().filter(|first| first.number > 0 && first.ago_ms < SPAN_MS);
    if let Some(first) = forgotten {
        let time = crate::gateway::duration(first.ago_ms / 1_000);
        let _ = write!(html, "<p class=\"note\">Events of more than {time} ago are not kept.</p>");
    }
    if shown.peek().is_none() {
        html += if forgotten.is_some() { "<p>None since.</p>" } else { "<p>None in the last hour.</p>" };
        return html;
    }
    html += "<table class=\"events\"><tr><th>before the report</th><th>peer</th><th>event</th></tr>";
    for event in shown {
        let peer = event.peer.as_deref().unwrap_or_default();
        let (time, text) = (crate::gateway::duration(event.ago_ms / 1_000), escaped(&event.text));
        let _ = write!(html, "<tr><td>{time}</td><td>{}</td><td>{text}</td></tr>", escaped(peer));
    }
    html + "</table>"
}

/// A text that HTML takes as it is, between tags and in attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            _ => safe.push(char),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use maelstrom::status::WindowStatus;

    use super::super::super::losses::tests::peer;
    use super::*;

    fn minute(ago: u64, lost: u64) -> MinuteStatus {
        let here = FateStatus {
            packets: 1_000,
            lost,
            recovered: lost,
            loss_percent: lost as f64 / 10.0,
            ..FateStatus::default()
        };
        let window =
            WindowStatus { here, recovery_delay_us: (lost > 0).then_some(2_500), ..WindowStatus::default() };
        MinuteStatus { ago_ms: 60_000 * ago, window }
    }

    fn rendered(course: Vec<MinuteStatus>) -> String {
        let event =
            |ago_ms, text: &str| EventStatus { ago_ms, text: text.to_owned(), ..EventStatus::default() };
        let losses = Losses {
            peers: vec![PeerLosses { course, ..peer(Vec::new()) }],
            events: vec![event(4_000_000, "too old"), event(65_000, "up <again>")],
            ..Losses::default()
        };
        page(&Status::default(), &losses, "2026-01-02 03:04:05 UTC")
    }

    #[test]
    fn a_page_sums_the_hour_up_and_draws_it() {
        let html = rendered(vec![minute(61, 500), minute(2, 10), minute(1, 0), minute(0, 5)]);
        let row = "<tr><td>from osaka</td><td>3,000</td><td>15 (0.50 %)</td><td>15</td><td>0</td><td>0</td><td>4</td></tr>";
        assert!(html.contains(row), "{html}");
        assert!(html.contains("<td>to osaka</td><td>0</td><td>0</td>"), "{html}");
        // Loss, and loss that stays, have a line. A minute without losses has no delay.
        assert_eq!((html.matches("<polyline").count(), html.matches("<circle").count()), (2, 2), "{html}");
        assert_eq!(html.matches("<rect").count(), 2, "bursts of one, and of three and four");
        assert!(
            html.contains("<td>1 min 5 s</td><td></td><td>up &lt;again&gt;</td>")
                && !html.contains("too old")
        );
        assert!(html.contains("2026-01-02 03:04:05 UTC"));
    }

    #[test]
    fn a_page_loads_nothing_and_says_when_there_is_nothing() {
        let html = rendered(Vec::new());
        assert!(html.contains("No packets yet."), "{html}");
        let html = html + &rendered(vec![minute(0, 1)]);
        for loader in ["src=", "href=", "url(", "@import", "<script", "http"] {
            assert!(!html.contains(loader), "{loader}");
        }
    }

    #[test]
    fn a_page_says_none_of_events_only_for_the_time_of_which_all_are_kept() {
        let event = |number, minutes: u64, peer: &str| EventStatus {
            number,
            ago_ms: 60_000 * minutes,
            peer: Some(peer.to_owned()),
            text: format!("event {number}"),
            ..EventStatus::default()
        };
        let shown = |kept: Vec<EventStatus>| {
            let peers = vec![peer(Vec::new())];
            events(&Losses { peers, events: kept, ..Losses::default() })
        };
        // The events of another link have taken the place of those of `osaka`.
        let html = shown(vec![event(9, 35, "tokyo"), event(10, 2, "tokyo")]);
        assert!(
            html.contains("Events of more than 35 min 0 s ago are not kept.</p><p>None since."),
            "{html}"
        );
        let html = shown(vec![event(9, 35, "tokyo"), event(10, 2, "osaka")]);
        assert!(html.contains("are not kept") && html.contains("event 10") && !html.contains("event 9"));
        for all in [event(0, 35, "tokyo"), event(9, 61, "tokyo")] {
            let html = shown(vec![all, event(10, 2, "tokyo")]);
            assert!(html.contains("<p>None in the last hour.</p>") && !html.contains("not kept"), "{html}");
        }
    }

    #[test]
    fn numbers_are_short_and_grouped() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!([100.0, 12.345, 0.286_67, 0.000_012].map(significant), ["100", "12", "0.29", "0.000012"]);
    }

    #[test]
    fn names_cannot_change_the_page() {
        assert_eq!(escaped("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
    }

    /// Measures in a browser what is drawn of each chart, and prints it as JSON.
    const MEASURE: &str = "<script>
const box = it => { const b = it.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
const charts = [...document.querySelectorAll('svg')].map(svg => ({
  title: svg.getAttribute('aria-label'), area: box(svg),
  values: [...svg.querySelectorAll('.value')].map(it =>
    ({ box: box(it), stroke: getComputedStyle(it).stroke, fill: getComputedStyle(it).fill })),
  texts: [...svg.querySelectorAll('text')].map(box),
}));
const page = { wide: document.documentElement.scrollWidth > innerWidth, charts };
document.body.innerHTML = ''; document.body.textContent = 'JSON' + JSON.stringify(page) + 'END';
</script>";

    #[derive(serde::Deserialize)]
    struct Drawn {
        wide: bool,
        charts: Vec<Chart>,
    }

    #[derive(serde::Deserialize)]
    struct Chart {
        title: String,
        area: [f64; 4],
        values: Vec<Value>,
        texts: Vec<[f64; 4]>,
    }

    #[derive(serde::Deserialize)]
    struct Value {
        r#box: [f64; 4],
        stroke: String,
        fill: String,
    }

    fn draw(html: &str) -> Option<Drawn> {
        let place = std::env::temp_dir().join(format!("undrop-report-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let file = place.join("report.html");
        std::fs::write(&file, html.replace("</body>", &format!("{MEASURE}</body>"))).unwrap();
        let mut browser = std::process::Command::new("chromium");
        browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--window-size=900,1200"]);
        browser.arg(format!("--user-data-dir={}", place.display())).arg(format!("file://{}", file.display()));
        let dumped = browser.output();
        let _ = std::fs::remove_dir_all(&place);
        match dumped {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let part = text.split_once("JSON").and_then(|(_, rest)| rest.split_once("END"));
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                Some(serde_json::from_str(part.unwrap_or_else(|| panic!("{text}\n{said}")).0).unwrap())
            }
            Err(error) => {
                eprintln!(
                    "SKIPPED: a_browser_draws_each_chart_within_its_area: chromium: {error}; Debian has it in the \
                     package `chromium`"
                );
                None
            }
        }
    }

    #[test]
    fn a_browser_draws_each_chart_within_its_area() {
        let hour = (0..60).rev().map(|ago| minute(ago, if ago == 30 { 0 } else { ago % 7 }));
        let Some(drawn) = draw(&rendered(hour.collect())) else { return };
        assert!(!drawn.wide, "the page fits the window");
        assert_eq!(drawn.charts.len(), 5);
        for Chart { title, area, values, texts } in &drawn.charts {
            let within = |inner: &[f64; 4]| {
                inner[0] >= area[0] - 1.0
                    && inner[1] >= area[1] - 1.0
                    && inner[2] <= area[2] + 1.0
                    && inner[3] <= area[3] + 1.0
            };
            assert!(area[2] - area[0] > 300.0 && area[3] - area[1] > 80.0, "{title}: {area:?}");
            assert!(texts.iter().all(within) && texts.len() > 5, "{title}: {area:?} {texts:?}");
            for (at, one) in texts.iter().enumerate() {
                let overlaps = |other: &[f64; 4]| {
                    one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]
                };
                assert!(!texts[at + 1..].iter().any(overlaps), "{title}: numbers overlap at {one:?}");
            }
            // Nothing was sent, so there is no overhead.
            assert_eq!(values.is_empty(), title.starts_with("Repairs"), "{title}");
            for value in values {
                let is_seen = value.stroke.starts_with("rgb") || value.fill.starts_with("rgb");
                assert!(within(&value.r#box) && is_seen, "{title}: {:?} in {area:?}", value.r#box);
            }
        }
        let loss = &drawn.charts[0].values[0].r#box;
        assert!(
            loss[2] - loss[0] > 500.0 && loss[3] - loss[1] > 60.0,
            "losses of an hour fill the chart: {loss:?}"
        );
    }
}
