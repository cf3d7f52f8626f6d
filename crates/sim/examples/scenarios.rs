//! `scenarios [FROM] [TO]` runs scenarios by their seeds and lists those that panic.

use sim::Scenario;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (from, to) = (arguments.next().unwrap_or(0), arguments.next().unwrap_or(1_000));
    let mut stopped = 0;
    for seed in from..to {
        if std::panic::catch_unwind(|| Scenario::of_seed(seed).run()).is_err() {
            println!("seed {seed} stopped");
            stopped += 1;
        }
    }
    println!("{stopped} of {} stopped", to - from);
}
