//! Owns the oracle of instructions: what callgrind saw executed, joined with the program's disassembly.
//!
//! Nothing in the program takes part: neither a register of known locks nor a counting wrapper can hide an instruction from it.

use super::part::{Part, Unit, Variant};
use super::tools;
use crate::bench::failure::Failure;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// Functions of the C library that are calls of the heap.
const HEAP: [&str; 7] = ["malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc", "memalign"];
/// How many callers of a call of the heap are told.
const HEAP_CALLERS: usize = 8;

/// What was executed in lanes' turns, of all operations together.
#[derive(Clone, Debug, Default)]
pub struct Executed {
    /// Operations.
    pub ops: u64,
    /// Instructions.
    pub instructions: u64,
    /// Calls of the heap.
    pub heap_calls: u64,
    /// Executed instructions that have a core take a line for itself, or wait until its writes are out: with a lock prefix,
    /// exchanges with memory, which lock without one, and full fences.
    pub locked: u64,
    /// Where those are, the busiest first: function, executions.
    pub sites: Vec<(String, u64)>,
    /// Who called the heap: functions from the inside out, executions.
    pub heap_sites: Vec<(String, u64)>,
}

/// Executions by address, by object; instructions and calls of the heap.
#[derive(Default, Debug)]
struct Profile {
    addresses: HashMap<String, HashMap<u64, u64>>,
    instructions: u64,
    /// By the callers.
    heap_calls: BTreeMap<String, u64>,
}

/// Reads what `--dump-instr=yes --compress-pos=no --compress-strings=no` writes.
fn profile(text: &str) -> Profile {
    let mut profile = Profile::default();
    let (mut object, mut function, mut is_call) = (String::new(), String::new(), false);
    // A call of the heap is an execution of its first instruction: numbers of calls are counted outside the window too.
    let mut entries: HashMap<String, BTreeMap<u64, u64>> = HashMap::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name.to_owned();
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = name.to_owned();
        } else if line.starts_with("calls=") {
            // What follows is the callee's cost, which is listed at the callee too.
            is_call = true;
        } else if let Some(rest) = line.strip_prefix("0x") {
            let mut words = rest.split(' ');
            let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
            let executions: Option<u64> = words.nth(1).and_then(|word| word.parse().ok());
            if let (Some(address), Some(executions), false) = (address, executions, is_call) {
                profile.instructions += executions;
                *profile.addresses.entry(object.clone()).or_default().entry(address).or_default() += executions;
                // Callers stand behind the function, each behind an apostrophe.
                if function.split('\'').next().is_some_and(|called| HEAP.contains(&called)) {
                    *entries.entry(function.clone()).or_default().entry(address).or_default() += executions;
                }
            }
            is_call = false;
        }
    }
    for (function, addresses) in entries {
        let first = addresses.values().next().copied().unwrap_or(0);
        *profile.heap_calls.entry(function).or_default() += first;
    }
    profile.heap_calls.retain(|_, calls| *calls > 0);
    profile
}

/// Whether a disassembled instruction locks.
fn locks(instruction: &str) -> bool {
    let (name, operands) = instruction.split_once(' ').unwrap_or((instruction, ""));
    match name {
        "lock" | "mfence" => true,
        // Between registers it is an exchange of two names.
        name if name.starts_with("xchg") => {
            !operands.trim().split(',').all(|operand| operand.starts_with('%') && !operand.contains(':'))
        }
        _ => false,
    }
}

/// Addresses of locked instructions in a disassembly.
fn locked(disassembly: &str) -> impl Iterator<Item = u64> + '_ {
    disassembly.lines().filter_map(|line| {
        let (address, instruction) = line.trim_start().split_once(":\t")?;
        locks(instruction.trim()).then(|| u64::from_str_radix(address, 16).ok())?
    })
}

/// The functions of an address, innermost first.
pub fn functions(object: &str, addresses: &[u64]) -> Result<Vec<String>, Failure> {
    let mut command = Command::new("addr2line");
    command.args(["-a", "-f", "-i", "-C", "-e", object]).args(addresses.iter().map(|address| format!("{address:#x}")));
    let text = tools::output(&mut command, "addr2line", "binutils")?;
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("0x") {
            all.push(String::new());
        } else if let Some(last) = all.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    Ok(all)
}

/// The function to show: the innermost of ours.
pub fn shown(functions: &str) -> String {
    let named = functions.lines().step_by(2);
    let ours = named.clone().find(|name| name.contains("laneway"));
    ours.or_else(|| named.clone().next()).unwrap_or("?").to_owned()
}

/// Addresses of locked instructions, by object: a program is disassembled once, which takes longest of all.
#[derive(Default, Debug)]
pub struct Disassembled(HashMap<String, Vec<u64>>);

impl Disassembled {
    fn of(&mut self, object: &str) -> Result<&[u64], Failure> {
        if !self.0.contains_key(object) {
            if !Path::new(object).is_file() {
                let what = format!("instructions of '{object}' were executed, which cannot be looked into");
                return Err(Failure::Machine(what));
            }
            let mut command = Command::new("objdump");
            command.args(["-d", "--no-show-raw-insn", object]);
            let disassembly = tools::output(&mut command, "objdump", "binutils")?;
            self.0.insert(object.to_owned(), locked(&disassembly).collect());
        }
        Ok(&self.0[object])
    }
}

/// Counts operations of a variant in lanes' turns: `(warm_up, ops)`.
pub fn count(
    unit: Unit,
    variant: Variant,
    (warm_up, ops): (u64, u64),
    disassembled: &mut Disassembled,
) -> Result<Executed, Failure> {
    let names = format!("laneway-callgrind-{}-{}-{}", std::process::id(), unit.name(), variant.name());
    let file = std::env::temp_dir().join(names);
    let part = Part { unit, variant, ops, warm_up, traced: false, watched: false };
    let mut valgrind = tools::valgrind("callgrind")
        .option("--dump-instr=yes")
        .option("--compress-pos=no")
        .option("--compress-strings=no")
        // Not what a lane does between its turns, and not the control plane.
        .option("--toggle-collect=*counted_turn*");
    for function in HEAP {
        valgrind = valgrind.option(&format!("--separate-callers{HEAP_CALLERS}={function}"));
    }
    let valgrind = valgrind.file("--callgrind-out-file", &file);
    let said = tools::output(&mut valgrind.program(&part)?, "valgrind", "valgrind")?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| Failure::Machine(format!("callgrind wrote no {}: {error}", file.display())))?;
    let _ = std::fs::remove_file(&file);
    let profile = profile(&text);
    if profile.instructions == 0 {
        return Err(Failure::Machine("callgrind saw no lane's turn: this program has no symbols".into()));
    }
    let mut executed = Executed {
        ops: tools::number(&said, "ops")?,
        instructions: profile.instructions,
        heap_calls: profile.heap_calls.values().sum(),
        heap_sites: profile.heap_calls.iter().map(|(who, calls)| (who.replace('\'', " < "), *calls)).collect(),
        ..Executed::default()
    };
    executed.heap_sites.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    for (object, addresses) in &profile.addresses {
        let all = disassembled.of(object)?;
        let hit: Vec<u64> = all.iter().copied().filter(|address| addresses.contains_key(address)).collect();
        if hit.is_empty() {
            continue;
        }
        for (address, functions) in hit.iter().zip(functions(object, &hit)?) {
            executed.locked += addresses[address];
            executed.sites.push((shown(&functions), addresses[address]));
        }
    }
    executed.sites.sort_by_key(|(_, executions)| std::cmp::Reverse(*executions));
    Ok(executed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_counts_where_it_is_and_not_where_it_was_called() {
        let profile = profile(
            "positions: instr line\nevents: Ir\nob=/bin/a\nfl=x.rs\nfn=one\n0x10 3 5\n0x14 3 5\ncob=/lib/c\ncfn=malloc\ncalls=2 0x50 0\n0x14 3 900\n0x18 4 5\nob=/lib/c\nfn=malloc'one\n0x54 0 0\n0x50 0 2\ncfn=other\ncalls=9 0x60 0\n0x50 0 9\nfn=malloc'two\n0x50 0 1\n0x54 0 1\nfn=malloc_hook\n0x70 0 8\n",
        );
        assert_eq!(profile.instructions, 27);
        let calls: Vec<(&str, u64)> = profile.heap_calls.iter().map(|(who, calls)| (who.as_str(), *calls)).collect();
        assert_eq!(calls, [("malloc'one", 2), ("malloc'two", 1)]);
        assert_eq!(profile.addresses["/bin/a"][&0x14], 5);
        assert_eq!(profile.addresses["/lib/c"][&0x50], 3);
    }

    #[test]
    fn what_locks_is_told_from_what_only_exchanges_registers() {
        let text = "  10:\tlock xadd %rax,(%rdi)\n  14:\txchg   %ax,%ax\n  16:\txchg   %rax,(%rdi)\n  20:\tmov (%rax),%rbx\n  24:\tlock or %r8,(%rsp)\n  28:\tmfence\n  2b:\txchg   %eax,%fs:0x10\n  30:\txchg   %rax,0x40(%rip)        # 5000 <locked>\n  38:\tlfence\n";
        assert_eq!(locked(text).collect::<Vec<_>>(), [0x10, 0x16, 0x24, 0x28, 0x2b, 0x30]);
    }

    #[test]
    fn a_site_is_the_innermost_function_of_ours() {
        let inlined = "core::sync::atomic::AtomicU64::fetch_add\n?\nlaneway_lab::coherence::planted::with\n?\n";
        assert_eq!(shown(inlined), "laneway_lab::coherence::planted::with");
        assert_eq!(shown("malloc\n?\n"), "malloc");
    }
}
