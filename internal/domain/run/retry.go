package run

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/id"
)

// RetryPolicy defines how often and when a failed task is retried. A zero field is not set; Resolve
// fills it from the layers below.
type RetryPolicy struct {
	MaxAttempts   int           `json:"max_attempts,omitempty"`
	MaxDeaths     int           `json:"max_deaths,omitempty"` // of workers, counted separately from failures
	InitialDelay  time.Duration `json:"initial_delay,omitempty"`
	MaxDelay      time.Duration `json:"max_delay,omitempty"`
	Multiplier    float64       `json:"multiplier,omitempty"`
	Jitter        float64       `json:"jitter,omitempty"` // share of the delay that is random, 0 to 1
	RetryOn       []string      `json:"retry_on,omitempty"`
	NoRetryOn     []string      `json:"no_retry_on,omitempty"`
	TimeoutGrowth float64       `json:"timeout_growth,omitempty"`
}

// DefaultJitter is the random share of a delay unless a policy sets another, so that tasks that
// failed together do not retry together.
const DefaultJitter = 0.2

// globalRetryPolicy applies where no layer sets a field.
func globalRetryPolicy() RetryPolicy {
	return RetryPolicy{MaxAttempts: 3, MaxDeaths: 3, InitialDelay: time.Minute, MaxDelay: time.Hour, Multiplier: 2, Jitter: DefaultJitter, TimeoutGrowth: 1}
}

// codeRetryPolicy is the default of one error code.
func codeRetryPolicy(code string) RetryPolicy {
	switch canonicalCode(code) {
	case "RATE_LIMITED":
		return RetryPolicy{MaxAttempts: 5, InitialDelay: 15 * time.Minute}
	case "NETWORK_ERROR":
		return RetryPolicy{MaxAttempts: 3, InitialDelay: 5 * time.Minute}
	case "SERVICE_UNAVAILABLE":
		return RetryPolicy{MaxAttempts: 3, InitialDelay: 10 * time.Minute}
	}
	return RetryPolicy{}
}

// Resolve merges the layers, the strongest first (config, pipeline, asset), over the default of the
// error code and the global one. Each field comes from the first layer that sets it.
func Resolve(code string, layers ...RetryPolicy) RetryPolicy {
	var resolved RetryPolicy
	for _, layer := range append(slices.Clone(layers), codeRetryPolicy(code), globalRetryPolicy()) {
		resolved = resolved.or(layer)
	}
	return resolved
}

func (p RetryPolicy) or(weaker RetryPolicy) RetryPolicy {
	pick := func(mine *float64, theirs float64) {
		if *mine == 0 {
			*mine = theirs
		}
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = weaker.MaxAttempts
	}
	if p.MaxDeaths == 0 {
		p.MaxDeaths = weaker.MaxDeaths
	}
	if p.InitialDelay == 0 {
		p.InitialDelay = weaker.InitialDelay
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = weaker.MaxDelay
	}
	pick(&p.Multiplier, weaker.Multiplier)
	pick(&p.Jitter, weaker.Jitter)
	pick(&p.TimeoutGrowth, weaker.TimeoutGrowth)
	if p.RetryOn == nil {
		p.RetryOn = weaker.RetryOn
	}
	if p.NoRetryOn == nil {
		p.NoRetryOn = weaker.NoRetryOn
	}
	return p
}

// retries reports whether a failure with this code is retried. The class decides; the policy's lists
// override it; a worker's hint can only prevent a retry, unless the policy lists the code.
func (p RetryPolicy) retries(code string, hint *bool) bool {
	listed := func(codes []string) bool {
		return slices.ContainsFunc(codes, func(c string) bool { return canonicalCode(c) == canonicalCode(code) })
	}
	if listed(p.NoRetryOn) {
		return false
	}
	if hint != nil && !*hint {
		return false
	}
	if listed(p.RetryOn) {
		return true
	}
	_, retried := classOf(code)
	return retried
}

// DelayAsked returns the delay that an endpoint requested, within the policy: at least a second, at
// most the policy's maximum. The jitter only lengthens it, since no attempt should start earlier.
func (p RetryPolicy) DelayAsked(asked time.Duration, failures int32, task id.Task) time.Duration {
	delay := max(float64(asked), float64(time.Second))
	if p.Jitter > 0 {
		delay += delay * min(p.Jitter, 1) * spread(task, failures)
	}
	if p.MaxDelay > 0 {
		delay = min(delay, float64(p.MaxDelay))
	}
	return time.Duration(delay).Truncate(time.Microsecond)
}

// Delay returns the wait after the n-th failure: min(initial × multiplier^(n−1), max), shortened by up
// to the jitter's share. The jitter is computed from the task's id and n, so decisions are repeatable.
func (p RetryPolicy) Delay(failures int32, task id.Task) time.Duration {
	delay := float64(p.InitialDelay) * math.Pow(p.Multiplier, float64(failures-1))
	if limit := float64(p.MaxDelay); delay > limit || math.IsNaN(delay) || math.IsInf(delay, 0) {
		delay = limit
	}
	if p.Jitter > 0 {
		delay -= delay * min(p.Jitter, 1) * spread(task, failures)
	}
	return time.Duration(delay).Truncate(time.Microsecond) // the precision of the database
}

// spread returns a stable number in [0, 1) for a task and a failure count.
func spread(task id.Task, failures int32) float64 {
	hash := fnv.New64a()
	_, _ = hash.Write(task.UUID[:])
	_ = binary.Write(hash, binary.BigEndian, failures)
	return float64(mix(hash.Sum64())>>11) / (1 << 53)
}

// mix is the finalizer of splitmix64. FNV alone gives similar high bits to inputs that differ in their
// last byte, as the failures of one task do.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
