package metrics

import (
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// Default caps of labels.
const (
	DefaultTenants = 100
	DefaultAssets  = 1000
	// maxCodes bounds the distinguished error codes: workers may invent them.
	maxCodes = 50
	// maxQuotas is larger than the number of quotas.
	maxQuotas = 20
)

// Recorder counts what the engine reports. It implements engine.Observer.
type Recorder struct {
	mu      sync.Mutex
	tenants *capped[id.Tenant, tenantSeries]
	assets  *capped[assetKey, taskCounts] // of the tenants that have labels of their own
	codes   *capped[string, uint64]
	quotas  *capped[string, uint64]

	scheduling   histogram
	locksTaken   uint64
	locksMissed  uint64
	lockHeld     histogram
	lockWaits    histogram
	rounds       [2]uint64 // well, and in trouble
	roundSeconds histogram
	admitted     uint64
	slots        slotCounts
	slotLag      histogram
	late         uint64 // runs that did not begin in time
	overran      uint64 // and that took too long
}

// slotCounts are slots by their outcome.
type slotCounts [config.Failed + 1]uint64

type assetKey struct {
	tenant    id.Tenant
	workspace id.Workspace
	asset     string
}

// NewRecorder returns a recorder that has labels for a number of tenants and assets;
// 0 is the default.
func NewRecorder(tenants, assets int) *Recorder {
	if tenants == 0 {
		tenants = DefaultTenants
	}
	if assets == 0 {
		assets = DefaultAssets
	}
	none := func() uint64 { return 0 }
	return &Recorder{
		tenants: newCapped[id.Tenant](tenants, func() tenantSeries { return tenantSeries{} }),
		assets:  newCapped[assetKey](assets, func() taskCounts { return nil }),
		codes:   newCapped[string](maxCodes, none), quotas: newCapped[string](maxQuotas, none),
	}
}

// Committed implements engine.Observer.
func (r *Recorder) Committed(done *engine.Committed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range done.Tasks {
		r.moved(&done.Tasks[i], done.At)
	}
	for i := range done.Runs {
		c := &done.Runs[i]
		if c.From == 0 && c.Run.Lock != "" {
			r.locksTaken++
		}
		if c.Run.State.Terminal() && !c.From.Terminal() {
			r.ended(c.Run)
		}
	}
	for _, sla := range done.Breaches {
		if sla == run.SLAStartDelay {
			r.late++
		} else {
			r.overran++
		}
	}
}

func (r *Recorder) moved(m *engine.TaskMove, at time.Time) {
	series, own := r.tenants.of(m.Tenant)
	switch m.From {
	case run.Ready:
		if m.To == run.Queued { // by a round of admission, or by handoff
			r.admitted++
			series.ready.observe(&waiting, at.Sub(m.Since))
		}
	case run.Queued:
		if m.To.Leased() {
			series.queued.observe(&waiting, at.Sub(m.Since))
		}
	case run.Dispatched, run.Running:
		if !m.To.Leased() {
			series.attempts[resultOf(m.To)]++
		}
		if m.From == run.Running {
			series.durations.observe(&working, at.Sub(m.StartedAt))
		}
	default: // other durations are not exported
	}
	if m.To == run.Running && !m.ReadyAt.IsZero() {
		r.scheduling.observe(&waiting, at.Sub(m.ReadyAt))
	}
	if m.Failure != "" {
		n, _ := r.codes.of(m.Failure)
		*n++
	}
	if m.To.Terminal() {
		tasks := &series.tasks
		if own && m.Asset != "" {
			if counts, named := r.assets.of(assetKey{m.Tenant, m.Workspace, m.Asset}); named {
				tasks = counts
			}
		}
		tasks.add(m.To, m.Outcome)
	}
}

// ended counts the end of a run.
func (r *Recorder) ended(ended *run.Run) {
	series, _ := r.tenants.of(ended.Tenant)
	series.runs[ended.State-run.RunSucceeded]++
	begun := ended.StartedAt
	if begun.IsZero() { // it was cancelled while it waited
		begun = ended.FinishedAt
	}
	series.runDurations.observe(&working, ended.FinishedAt.Sub(begun))
	if ended.Lock != "" {
		r.lockHeld.observe(&working, ended.FinishedAt.Sub(ended.CreatedAt))
	}
}

// Refused implements engine.Observer.
func (r *Recorder) Refused(quota string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := r.quotas.of(quota)
	*n++
}

// Contended implements engine.Observer. A lock that was got is counted with the run that has it.
func (r *Recorder) Contended(got bool, waited time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !got {
		r.locksMissed++
	}
	r.lockWaits.observe(&waiting, waited)
}

// Admitted implements engine.Observer.
func (r *Recorder) Admitted(round engine.AdmissionRound) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if round.Failed {
		r.rounds[1]++
	} else {
		r.rounds[0]++
	}
	r.roundSeconds.observe(&waiting, round.Took)
}

// Decided implements engine.Observer.
func (r *Recorder) Decided(slots []engine.SlotsDecided) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slots {
		r.slots[s.Outcome] += uint64(max(0, s.Slots))
		if s.Outcome == config.Fired {
			r.slotLag.observe(&waiting, s.Lag)
		}
	}
}

// snapshot is what has been counted so far.
type snapshot struct {
	tenants map[id.Tenant]tenantSeries
	others  tenantSeries
	assets  map[assetKey]taskCounts
	codes   map[string]uint64
	quotas  map[string]uint64

	scheduling, lockHeld, lockWaits, roundSeconds histogram
	locksTaken, locksMissed                       uint64
	rounds                                        [2]uint64
	admitted                                      uint64
	slots                                         slotCounts
	slotLag                                       histogram
	late, overran                                 uint64
}

// snapshot copies all counts under the lock, and then gives labels to tenants and assets that have
// become large.
func (r *Recorder) snapshot() snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := snapshot{
		tenants: make(map[id.Tenant]tenantSeries, len(r.tenants.own)), others: r.tenants.other.copied(),
		assets: make(map[assetKey]taskCounts, len(r.assets.own)), codes: totals(r.codes), quotas: totals(r.quotas),
		scheduling: r.scheduling, lockHeld: r.lockHeld, lockWaits: r.lockWaits, roundSeconds: r.roundSeconds,
		locksTaken: r.locksTaken, locksMissed: r.locksMissed, rounds: r.rounds, admitted: r.admitted, slots: r.slots, slotLag: r.slotLag,
		late: r.late, overran: r.overran,
	}
	for tenant, h := range r.tenants.own {
		s.tenants[tenant] = h.value.copied()
	}
	for key, h := range r.assets.own {
		s.assets[key] = append(taskCounts{}, h.value...)
	}
	r.turn()
	return s
}

// turn gives labels to those who have become large. The assets of a tenant that loses its
// label lose theirs.
func (r *Recorder) turn() {
	r.codes.turn()
	lost := map[id.Tenant]bool{}
	for _, tenant := range r.tenants.turn() {
		lost[tenant] = true
	}
	if len(lost) > 0 {
		r.assets.drop(func(key assetKey) bool { return lost[key.tenant] })
	}
	r.assets.turn()
}

// totals are the counts of texts, the others among them.
func totals(c *capped[string, uint64]) map[string]uint64 {
	all := make(map[string]uint64, len(c.own)+1)
	for key, h := range c.own {
		all[key] = h.value
	}
	if c.other > 0 {
		all[Other] = c.other
	}
	return all
}
