//! The jobs that come: a CSV file, gzipped or not, with the header
//! `t_seconds,service_seconds[,class]`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::moment::Moment;

/// The most jobs of a trace.
pub const MOST_JOBS: usize = 20_000_000;
/// The most classes of a trace.
pub const MOST_CLASSES: usize = 10_000;
/// The longest time from the first job to the last.
const LONGEST_TRACE: Moment = Moment::from_micros(3 * 366 * 86_400 * 1_000_000);
/// The longest job.
const LONGEST_JOB: Moment = Moment::from_micros(366 * 86_400 * 1_000_000);
/// The longest line, bytes.
const LONGEST_LINE: u64 = 1024;

/// Jobs in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The names of the classes; empty if the trace has none.
    pub classes: Vec<String>,
}

/// One job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// When it arrives.
    pub at: Moment,
    /// How long a worker is busy with it; at least a microsecond.
    pub service: Moment,
    /// Its class: an index into [`Trace::classes`], 0 if there are none.
    pub class: u32,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or unpacked.
    #[error("trace cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// A line is not as it must be.
    #[error("line {line}: {what}")]
    Line {
        /// Which one, from 1.
        line: usize,
        /// What is wrong and what it must be.
        what: String,
    },
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not as it must be.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::read(File::open(path)?)
    }

    /// Reads a trace; gzip is known by its first two bytes.
    ///
    /// # Errors
    /// The source cannot be read, or a line is not as it must be.
    pub fn read(source: impl Read) -> Result<Self, TraceError> {
        let mut source = BufReader::new(source);
        if source.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            return Self::parse(BufReader::new(MultiGzDecoder::new(source)));
        }
        Self::parse(source)
    }

    fn parse(mut source: impl BufRead) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut numbers = HashMap::new();
        let (mut text, mut has_class) = (String::new(), false);
        for line in 1.. {
            text.clear();
            let wrong = |what: String| TraceError::Line { line, what };
            let length = source.by_ref().take(LONGEST_LINE).read_line(&mut text)?;
            if length as u64 == LONGEST_LINE {
                return Err(wrong(format!("is longer than {LONGEST_LINE} bytes")));
            }
            if line == 1 {
                has_class = header(text.trim_start_matches('\u{feff}').trim()).map_err(wrong)?;
            } else if length == 0 {
                break;
            } else if !text.trim().is_empty() {
                let (job, class) = job(text.trim(), has_class, trace.jobs.last()).map_err(wrong)?;
                let class = trace.class_number(&mut numbers, class).map_err(wrong)?;
                if trace.jobs.len() == MOST_JOBS {
                    return Err(wrong(format!("is beyond the limit of {MOST_JOBS} jobs")));
                }
                let first = trace.jobs.first().map_or(job.at, |first| first.at);
                if job.at.since(first) > LONGEST_TRACE || job.service > LONGEST_JOB {
                    return Err(wrong(
                        "has a job of more than a year, or three after the first".into(),
                    ));
                }
                trace.jobs.push(Job { class, ..job });
            }
        }
        trace.begin_at_first();
        Ok(trace)
    }

    /// Time counts from the first job on, whatever clock the file goes by.
    fn begin_at_first(&mut self) {
        let first = self.jobs.first().map(|job| job.at).unwrap_or_default();
        self.jobs.iter_mut().for_each(|job| job.at = job.at.since(first));
    }

    fn class_number(
        &mut self,
        numbers: &mut HashMap<String, u32>,
        class: Option<&str>,
    ) -> Result<u32, String> {
        let Some(name) = class else { return Ok(0) };
        if let Some(number) = numbers.get(name) {
            return Ok(*number);
        }
        if self.classes.len() == MOST_CLASSES {
            return Err(format!("has the class {name}, beyond the limit of {MOST_CLASSES}"));
        }
        let number = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        self.classes.push(name.into());
        numbers.insert(name.into(), number);
        Ok(number)
    }

    /// The most jobs that run at once if each starts on arrival.
    pub fn peak_concurrency(&self) -> u32 {
        let mut ends: Vec<Moment> = self.jobs.iter().map(|j| j.at.plus(j.service)).collect();
        ends.sort_unstable();
        let (mut ended, mut peak) = (0, 0);
        for (arrived, job) in self.jobs.iter().enumerate() {
            while ends[ended] <= job.at {
                ended += 1;
            }
            peak = peak.max(arrived + 1 - ended);
        }
        u32::try_from(peak).unwrap_or(u32::MAX)
    }

    /// The service of all jobs.
    pub fn work(&self) -> Moment {
        self.jobs.iter().fold(Moment::default(), |sum, job| sum.plus(job.service))
    }
}

/// Whether the trace has classes.
fn header(line: &str) -> Result<bool, String> {
    match line {
        "t_seconds,service_seconds" => Ok(false),
        "t_seconds,service_seconds,class" => Ok(true),
        "" => Err("is empty; the header t_seconds,service_seconds[,class] must be first".into()),
        other => Err(format!("header is `{other}`, must be t_seconds,service_seconds[,class]")),
    }
}

fn job<'a>(
    line: &'a str,
    has_class: bool,
    last: Option<&Job>,
) -> Result<(Job, Option<&'a str>), String> {
    let mut columns = line.split(',').map(str::trim);
    let mut seconds = |name: &str| {
        let text = columns.next().ok_or_else(|| format!("{name} is missing"))?;
        let number = text.parse().ok().and_then(Moment::from_seconds);
        number.ok_or_else(|| format!("{name} is `{text}`, must be seconds, 0 or more"))
    };
    let (at, service) = (seconds("t_seconds")?, seconds("service_seconds")?);
    let class = columns.next();
    if class.is_some() != has_class || columns.next().is_some() {
        return Err("has not as many columns as the header".into());
    }
    if service == Moment::default() {
        return Err("service_seconds must be above 0".into());
    }
    if last.is_some_and(|last| last.at > at) {
        return Err("t_seconds is before that of the line above; sort the trace".into());
    }
    Ok((Job { at, service, class: 0 }, class))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn job(at: f64, service: f64, class: u32) -> Job {
        let seconds = |s| Moment::from_seconds(s).unwrap();
        Job { at: seconds(at), service: seconds(service), class }
    }

    #[test]
    fn plain_and_gzipped_are_the_same() {
        let text = "t_seconds,service_seconds,class\r\n0,5.7,mail\n86.9,0.05,cron\n86.9,1,mail\n\n";
        let plain = Trace::read(text.as_bytes()).unwrap();
        assert_eq!(plain.jobs, [job(0.0, 5.7, 0), job(86.9, 0.05, 1), job(86.9, 1.0, 0)]);
        assert_eq!(plain.classes, ["mail", "cron"]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        assert_eq!(Trace::read(&packed.finish().unwrap()[..]).unwrap(), plain);
    }

    #[test]
    fn a_trace_may_have_no_class_and_no_jobs() {
        let trace = Trace::read("t_seconds,service_seconds\n1,2".as_bytes()).unwrap();
        assert_eq!(
            (trace.jobs, trace.classes.len()),
            (vec![job(0.0, 2.0, 0)], 0),
            "from the first on"
        );
        assert_eq!(
            Trace::read("t_seconds,service_seconds\n".as_bytes()).unwrap(),
            Trace::default()
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let long = format!("t_seconds,service_seconds\n1,{}", "1".repeat(2000));
        let table = [
            ("", "line 1: is empty"),
            ("time,duration\n", "line 1: header is `time,duration`"),
            ("t_seconds,service_seconds\n1,2\n3\n", "line 3: service_seconds is missing"),
            ("t_seconds,service_seconds\n1,2,x\n", "line 2: has not as many columns"),
            ("t_seconds,service_seconds,class\n1,2\n", "line 2: has not as many columns"),
            ("t_seconds,service_seconds\n-1,2\n", "line 2: t_seconds is `-1`"),
            ("t_seconds,service_seconds\n1,NaN\n", "line 2: service_seconds is `NaN`"),
            ("t_seconds,service_seconds\n1,0\n", "line 2: service_seconds must be above 0"),
            ("t_seconds,service_seconds\n2,1\n1,1\n", "line 3: t_seconds is before"),
            (&long, "line 2: is longer than 1024 bytes"),
        ];
        for (text, expected) in table {
            let error = Trace::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error} instead of {expected}");
        }
        assert!(matches!(Trace::read(&[0x1f, 0x8b, 0][..]), Err(TraceError::Unreadable(_))));
    }

    #[test]
    fn the_peak_counts_jobs_that_overlap() {
        let trace = |jobs: &[Job]| Trace { jobs: jobs.to_vec(), classes: Vec::new() };
        // The second ends as the third arrives: two at once.
        let jobs = [job(0.0, 10.0, 0), job(1.0, 2.0, 0), job(3.0, 1.0, 0), job(20.0, 1.0, 0)];
        assert_eq!(trace(&jobs).peak_concurrency(), 2);
        assert_eq!(trace(&[]).peak_concurrency(), 0);
        assert_eq!(trace(&jobs).work(), Moment::from_seconds(14.0).unwrap());
    }
}
