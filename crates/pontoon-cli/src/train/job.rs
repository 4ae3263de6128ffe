//! The job on its devices: memory, streams, kernels, and the stages of a step.

use std::{ops::Range, sync::Arc, thread, time::Duration};

use pontoon::{Buffer, CpuDevice, CpuSpec, Engine, Fence, Kernel, Runtime, cpu::Region};

use super::{
    data::Dataset,
    error::TrainError,
    model::{self, Shape},
    places::Places,
    plan::{Absence, Part, Plan, Present, Step},
    reference::Settings,
    taker::{Streams, Taker},
};
use crate::doctor::available_memory;

/// Batches that can be under way at once. With two the host, which shares the cores with the devices,
/// often came too late with the next one; more than four gain nothing.
pub(super) const IN_FLIGHT: usize = 4;

/// The job: its devices, and what they share.
pub(super) struct Job {
    pub(super) runtime: Runtime,
    pub(super) shared: Shared,
    /// Commands that a queue holds.
    pub(super) depth: u32,
}

/// What all devices work on. A handle: clones name the same memory.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) train: Arc<Dataset>,
    pub(super) settings: Settings,
    pub(super) among: Among,
    pub(super) shape: Shape,
    pub(super) params: Buffer<Region, f32>,
    velocity: Buffer<Region, f32>,
    /// `[place][parameter]`; each device writes those of its own shards.
    pub(super) gradients: Buffer<Region, f32>,
    /// `[batch under way][place]`; each device writes those of its own shards.
    pub(super) losses: Buffer<Region, f32>,
    /// `[batch under way][shard]`, for the host; the update writes it.
    report: Buffer<Region, f32>,
    /// The most shards of a batch.
    pub(super) shards: usize,
    pub(super) places: Places,
}

/// A buffer that ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    Params,
    Gradients,
    Losses,
}

/// Where a rank's devices stand among those of all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Among {
    /// The number of its first.
    pub(super) first: usize,
    /// How many it has.
    pub(super) here: u32,
    /// How many all ranks have.
    pub(super) all: usize,
}

impl Among {
    /// All devices are here.
    pub(super) fn one_rank(devices: u32) -> Self {
        Self { first: 0, here: devices, all: devices as usize }
    }

    /// What is left of a batch when the ranks whose bit is set in `absent` are gone.
    pub(super) fn present(self, samples: usize, absent: u64) -> Present {
        let each = self.here as usize;
        let gone = (0..self.all / each).filter(|rank| absent >> rank & 1 == 1);
        let absences: Vec<_> =
            gone.map(|rank| Absence { devices: rank * each..(rank + 1) * each, from: 0 }).collect();
        Present::of(0, samples, self.all, &absences)
    }
}

/// One device's own part: its memory and what it does to it.
pub(super) struct Lane {
    pub(super) index: usize,
    shared: Shared,
    // Of each batch under way.
    staging: Vec<Batch>,
    batches: Vec<Batch>,
    normalised: Vec<Buffer<Region, f32>>,
    augmented: Vec<Buffer<Region, f32>>,
    kernels: Kernels,
    features: Vec<f32>,
    labels: Vec<u8>,
}

/// A stage of a device's part of a step, each on a stream of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Copy,
    Normalise,
    Augment,
    Train,
    /// Device 0's, of all devices.
    Update,
}

impl Stage {
    /// The stages that every device has.
    pub(super) const OF_A_DEVICE: [Self; 4] =
        [Self::Copy, Self::Normalise, Self::Augment, Self::Train];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Normalise => "normalise",
            Self::Augment => "augment",
            Self::Train => "train",
            Self::Update => "update",
        }
    }

    pub(super) fn engine(self) -> Engine {
        match self {
            Self::Copy => Engine::Copy,
            _ => Engine::Compute,
        }
    }
}

/// The samples of a device's part of a batch.
struct Batch {
    features: Buffer<Region, f32>,
    labels: Buffer<Region, u8>,
    numbers: Buffer<Region, u32>,
}

struct Kernels {
    normalise: Kernel,
    augment: Kernel,
    gradient: Kernel,
    slow_gradient: Kernel,
}

/// How the gradients of all devices are summed and applied; device 0 does it.
pub(super) struct Root {
    shared: Shared,
    kernel: Kernel,
}

impl Job {
    pub(super) fn open(
        devices: u32,
        train: Arc<Dataset>,
        settings: Settings,
        plan: &Plan,
        trace: u32,
    ) -> Result<Self, TrainError> {
        let among = Among::one_rank(devices);
        let spec = CpuSpec { trace, ..CpuSpec::default() };
        Self::open_among(among, train, settings, plan, spec, |device, _, len| {
            Ok(Buffer::allocate(device, len)?)
        })
    }

    /// One rank's part of a job; `shared` allocates what ranks send each other.
    pub(super) fn open_among(
        among: Among,
        train: Arc<Dataset>,
        settings: Settings,
        plan: &Plan,
        spec: CpuSpec,
        shared: impl Fn(&CpuDevice, Share, usize) -> Result<Buffer<Region, f32>, TrainError>,
    ) -> Result<Self, TrainError> {
        let places = Places::new(among, plan);
        fits(needed(train.shape(), plan, &places), available_memory())?;
        let runtime = Runtime::cpu_of(among.here, spec).map_err(TrainError::Device)?;
        let shape = train.shape();
        let shards = model::shards(plan.largest_batch());
        let root = &runtime.devices()[0];
        let params = shared(root, Share::Params, shape.parameters())?;
        params.host_write(0, &model::init(shape, settings.seed))?;
        let shared = Shared {
            train,
            settings,
            among,
            shape,
            params,
            velocity: Buffer::allocate(root, shape.parameters())?,
            gradients: shared(root, Share::Gradients, places.len() * shape.parameters())?,
            losses: shared(root, Share::Losses, IN_FLIGHT * places.len())?,
            report: Buffer::allocate(root, IN_FLIGHT * shards)?,
            shards,
            places,
        };
        Ok(Self { runtime, shared, depth: spec.depth })
    }

    pub(super) fn lanes(&self, plan: &Plan, slow: Duration) -> Result<Vec<Lane>, TrainError> {
        let devices = (self.shared.among.first..).zip(self.runtime.devices());
        devices.map(|(index, device)| Lane::open(index, device, &self.shared, plan, slow)).collect()
    }

    pub(super) fn root(&self) -> Root {
        Root { shared: self.shared.clone(), kernel: update_kernel(&self.shared) }
    }

    /// Streams for the stages of device `index`, without a session.
    pub(super) fn streams(&self, index: usize) -> Result<Streams, TrainError> {
        Streams::open(&self.runtime.devices()[index], &Stage::OF_A_DEVICE)
    }

    /// A stream for the update, without a session.
    pub(super) fn root_stream(&self) -> Result<Streams, TrainError> {
        Streams::open(&self.runtime.devices()[0], &[Stage::Update])
    }
}

fn fits(needed: u64, available: Option<u64>) -> Result<(), TrainError> {
    match available {
        Some(available) if available < needed => Err(TrainError::TooLarge { needed, available }),
        _ => Ok(()),
    }
}

/// About how many bytes the devices of a job hold, all together.
fn needed(shape: Shape, plan: &Plan, places: &Places) -> u64 {
    let (inputs, parameters) = (shape.inputs() as u64, shape.parameters() as u64);
    let samples = plan.largest_batch() as u64;
    let shards = places.len() as u64;
    // Staged, copied, normalised and augmented.
    let images = 4 * IN_FLIGHT as u64 * samples * inputs;
    (images + (2 + shards) * parameters) * size_of::<f32>() as u64
}

impl Shared {
    /// The trained parameters. Nothing may be running.
    pub(super) fn params(&self) -> Result<Vec<f32>, TrainError> {
        Ok(self.params.to_vec()?)
    }

    /// The losses of a completed step, one a shard, read by `read` from an element on.
    pub(super) fn losses(
        &self,
        step: &Step,
        read: impl FnOnce(&Buffer<Region, f32>, usize, &mut [f32]) -> Result<(), TrainError>,
    ) -> Result<Vec<f32>, TrainError> {
        let mut losses = vec![0.0; model::shards(step.samples().len())];
        read(&self.report, step.index % IN_FLIGHT * self.shards, &mut losses)?;
        Ok(losses)
    }

    /// Whether `step` gives `device` anything to do.
    pub(super) fn has_part(&self, device: usize, step: &Step) -> bool {
        !self.part(device, step).is_empty()
    }

    pub(super) fn part(&self, device: usize, step: &Step) -> Part {
        Part::of(device, self.among.all, step.samples().len())
    }
}

impl Lane {
    fn open(
        index: usize,
        device: &CpuDevice,
        shared: &Shared,
        plan: &Plan,
        slow: Duration,
    ) -> Result<Self, TrainError> {
        let inputs = shared.shape.inputs();
        // A smaller batch can leave a device one shard more than the largest one does, never two.
        let part = Part::of(index, shared.among.all, plan.largest_batch()).samples.len();
        let most = (part + model::SHARD).min(plan.largest_batch());
        let batch = || -> Result<Batch, TrainError> {
            Ok(Batch {
                features: Buffer::allocate(device, most * inputs)?,
                labels: Buffer::allocate(device, most)?,
                numbers: Buffer::allocate(device, most)?,
            })
        };
        let images = || Buffer::allocate(device, most * inputs);
        Ok(Self {
            index,
            shared: shared.clone(),
            staging: (0..IN_FLIGHT).map(|_| batch()).collect::<Result<_, _>>()?,
            batches: (0..IN_FLIGHT).map(|_| batch()).collect::<Result<_, _>>()?,
            normalised: (0..IN_FLIGHT).map(|_| images()).collect::<Result<_, _>>()?,
            augmented: (0..IN_FLIGHT).map(|_| images()).collect::<Result<_, _>>()?,
            kernels: Kernels::new(shared, slow),
            features: vec![0.0; most * inputs],
            labels: vec![0; most],
        })
    }

    /// Whether the step gives this device anything to do.
    pub(super) fn takes_part(&self, step: &Step) -> bool {
        self.shared.has_part(self.index, step)
    }

    /// Puts the device's samples where its copy engine finds them. Host work.
    pub(super) fn stage(&mut self, taker: &mut impl Taker, step: &Step) -> Result<(), TrainError> {
        let part = self.shared.part(self.index, step);
        let numbers = &step.samples()[part.samples];
        let features = &mut self.features[..numbers.len() * self.shared.shape.inputs()];
        let labels = &mut self.labels[..numbers.len()];
        self.shared.train.gather(numbers, features, labels);
        let staging = &self.staging[step.index % IN_FLIGHT];
        taker.write(&staging.features, features)?;
        taker.write(&staging.labels, labels)?;
        taker.write(&staging.numbers, numbers)
    }

    /// Brings the batch to the device.
    pub(super) fn copy(
        &mut self,
        taker: &mut impl Taker,
        step: &Step,
    ) -> Result<Fence, TrainError> {
        let (samples, images, slot) = self.ranges(step);
        let (from, to) = (&self.staging[slot], &self.batches[slot]);
        let features = (from.features.read(images.clone()), to.features.write(images));
        taker.copy("copy features", features.0, features.1)?;
        taker.copy(
            "copy labels",
            from.labels.read(samples.clone()),
            to.labels.write(samples.clone()),
        )?;
        taker.copy("copy numbers", from.numbers.read(samples.clone()), to.numbers.write(samples))
    }

    /// Scales the batch.
    pub(super) fn normalise(
        &mut self,
        taker: &mut impl Taker,
        step: &Step,
    ) -> Result<Fence, TrainError> {
        let (_, images, slot) = self.ranges(step);
        let (from, to) = (&self.batches[slot].features, &self.normalised[slot]);
        let accesses = [from.read(images.clone()), to.write(images)];
        taker.launch(Stage::Normalise, "normalise", &self.kernels.normalise, accesses, &[])
    }

    /// Shifts each image of the batch by a pixel, and scales it.
    pub(super) fn augment(
        &mut self,
        taker: &mut impl Taker,
        step: &Step,
    ) -> Result<Fence, TrainError> {
        let (samples, images, slot) = self.ranges(step);
        let batch = &self.batches[slot];
        let accesses = [
            batch.features.read(images.clone()),
            self.augmented[slot].write(images),
            batch.numbers.read(samples),
        ];
        let arguments = [u64::from(step.epoch)];
        taker.launch(Stage::Augment, "augment", &self.kernels.augment, accesses, &arguments)
    }

    /// Merges both versions of the batch and computes the gradients of the device's shards.
    pub(super) fn gradient(
        &mut self,
        taker: &mut impl Taker,
        step: &Step,
        slowly: bool,
    ) -> Result<Fence, TrainError> {
        let (samples, images, slot) = self.ranges(step);
        let places = self.shared.places.of_device(self.index, step.samples().len());
        let parameters = self.shared.shape.parameters();
        let losses = slot * self.shared.places.len();
        let accesses = [
            self.shared.params.read(..),
            self.normalised[slot].read(images.clone()),
            self.augmented[slot].read(images),
            self.batches[slot].labels.read(samples),
            self.shared.gradients.write(places.start * parameters..places.end * parameters),
            self.shared.losses.write(losses + places.start..losses + places.end),
        ];
        let kernels = &self.kernels;
        let kernel = if slowly { &kernels.slow_gradient } else { &kernels.gradient };
        taker.launch(Stage::Train, "gradient", kernel, accesses, &[])
    }

    /// The device's samples and image elements, and which of the batches under way it is.
    fn ranges(&self, step: &Step) -> (Range<usize>, Range<usize>, usize) {
        let samples = self.shared.part(self.index, step).samples.len();
        (0..samples, 0..samples * self.shared.shape.inputs(), step.index % IN_FLIGHT)
    }
}

impl Root {
    /// Sums all shards in their order, updates the parameters, and reports the losses. The shards of
    /// ranks whose bit is set in `absent` are left out.
    pub(super) fn update(
        &self,
        taker: &mut impl Taker,
        step: &Step,
        absent: u64,
    ) -> Result<Fence, TrainError> {
        let shared = &self.shared;
        let shards = model::shards(step.samples().len());
        let slot = step.index % IN_FLIGHT;
        let (losses, report) = (slot * shared.places.len(), slot * shared.shards);
        let accesses = [
            shared.params.write(..),
            shared.velocity.write(..),
            shared.gradients.read(..),
            shared.losses.read(losses..losses + shared.places.len()),
            shared.report.write(report..report + shards),
        ];
        let rate = shared.settings.rate(step.epoch).to_bits();
        let arguments = [step.samples().len() as u64, u64::from(rate), absent];
        taker.launch(Stage::Update, "update", &self.kernel, accesses, &arguments)
    }
}

impl Kernels {
    fn new(shared: &Shared, slow: Duration) -> Self {
        let (shape, seed, scale) = (shared.shape, shared.settings.seed, shared.train.scale());
        Self {
            normalise: Kernel::new(move |kernel| {
                model::normalise(kernel.read(0), kernel.write(1), scale);
            }),
            augment: Kernel::new(move |kernel| {
                let epoch = kernel.argument(0) as u32;
                let (raw, out, numbers) = (kernel.read(0), kernel.write(1), kernel.read(2));
                model::augment(shape, raw, out, scale, seed, epoch, numbers);
            }),
            gradient: gradient_kernel(shape, Duration::ZERO),
            slow_gradient: gradient_kernel(shape, slow),
        }
    }
}

fn gradient_kernel(shape: Shape, slow: Duration) -> Kernel {
    Kernel::new(move |kernel| {
        if !slow.is_zero() {
            thread::sleep(slow);
        }
        let params = kernel.read::<f32>(0);
        let (normalised, augmented) = (kernel.read::<f32>(1), kernel.read::<f32>(2));
        let labels = kernel.read::<u8>(3);
        let (gradients, losses) = (kernel.write::<f32>(4), kernel.write::<f32>(5));
        let parameters = shape.parameters();
        for (shard, loss) in losses.iter_mut().enumerate() {
            let samples = model::shard_range(shard, labels.len());
            let images = samples.start * shape.inputs()..samples.end * shape.inputs();
            *loss = model::shard_gradient(
                shape,
                params,
                &normalised[images.clone()],
                &augmented[images],
                &labels[samples],
                &mut gradients[shard * parameters..(shard + 1) * parameters],
            );
        }
    })
}

fn update_kernel(shared: &Shared) -> Kernel {
    let (momentum, among) = (shared.settings.momentum, shared.among);
    let places = shared.places.clone();
    Kernel::new(move |kernel| {
        let samples = kernel.argument(0) as usize;
        let rate = f32::from_bits(kernel.argument(1) as u32);
        let present = among.present(samples, kernel.argument(2));
        let (params, velocity) = (kernel.write(0), kernel.write(1));
        let (losses, report) = (kernel.read::<f32>(3), kernel.write::<f32>(4));
        report.fill(0.0);
        let mut there = Vec::with_capacity(report.len());
        for (shard, place) in places.in_order(samples, &present) {
            report[shard] = losses[place];
            there.push(place);
        }
        let (grads, samples) = (kernel.read(2), present.samples);
        model::apply(params, velocity, grads, &there, samples, rate, momentum);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_beyond_the_memory_is_refused_before_it_is_allocated() {
        let shape = Shape::for_inputs(1024).expect("a square");
        let plan = Plan::new(&Settings { batch: 65_536, ..Settings::DEFAULT }, 65_536);
        let places = Places::new(Among::one_rank(1), &plan);
        let needed = needed(shape, &plan, &places);
        assert!((6 << 30..7 << 30).contains(&needed), "{needed}");
        assert!(fits(needed, Some(needed)).is_ok() && fits(needed, None).is_ok());
        let error = fits(needed, Some(1 << 30)).expect_err("too little");
        assert!(error.is_bad_input());
        let said = "this run needs 6 GiB of memory and 1 GiB are available: take a smaller --batch";
        assert!(error.to_string().starts_with(said), "{error}");
    }
}
