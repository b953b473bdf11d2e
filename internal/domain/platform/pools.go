package platform

import (
	"fmt"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// PoolKind is pull, where workers claim tasks, or push, where Servo calls an endpoint.
type PoolKind string

// The kinds of pools.
const (
	Pull PoolKind = "pull"
	Push PoolKind = "push"
)

// NoLimit is the concurrency of a pool without one.
const NoLimit = -1

// PoolSettings are the user-defined properties of a pool.
type PoolSettings struct {
	Kind           PoolKind  `json:"kind"`
	Owner          id.Tenant `json:"owner,omitzero"`  // the only tenant that may use it; zero for a pool of the platform
	URL            string    `json:"url,omitempty"`   // of a push pool
	MaxConcurrency int32     `json:"max_concurrency"` // tasks in flight; NoLimit for none
	RatePerSecond  float32   `json:"rate_per_s"`      // calls of the URL; 0 is no limit
	TimeoutSeconds int32     `json:"timeout_s"`       // of one call
	// Tenants may use a pool of the platform, in the order of their ids; empty is all tenants.
	Tenants []id.Tenant `json:"tenants,omitempty"`
}

// Accepts returns the tenants whose tasks the pool accepts; nil is all.
func (s PoolSettings) Accepts() []id.Tenant {
	if s.Owner != (id.Tenant{}) {
		return []id.Tenant{s.Owner}
	}
	return s.Tenants
}

// Equal reports whether two settings are equal.
func (s PoolSettings) Equal(o PoolSettings) bool { return reflect.DeepEqual(s, o) }

// DefaultPoolTimeout is how long one call of a push pool's URL may take.
const DefaultPoolTimeout = 30 * time.Second

type (
	// PoolCreated creates a pool, also after it was deleted.
	PoolCreated struct{ PoolSettings }
	// PoolUpdated replaces all settings of a pool.
	PoolUpdated struct{ PoolSettings }
	// PoolDeleted deletes the configuration of a pool.
	PoolDeleted struct{}
)

// EventType implements event.Body.
func (PoolCreated) EventType() event.Type { return "pool.created" }
func (PoolUpdated) EventType() event.Type { return "pool.updated" }
func (PoolDeleted) EventType() event.Type { return "pool.deleted" }

// Pool is a configured pool. One that is not live was deleted or never created.
type Pool struct {
	PoolSettings

	Live      bool
	CreatedAt time.Time // most recently
}

func (p Pool) evolve(e Event) (Pool, error) {
	body, created := e.Body.(PoolCreated)
	if created == p.Live {
		return p, unexpected(e)
	}
	if created {
		return Pool{PoolSettings: body.PoolSettings, Live: true, CreatedAt: e.At}, nil
	}
	if body, updated := e.Body.(PoolUpdated); updated {
		p.PoolSettings = body.PoolSettings
		return p, nil
	}
	return Pool{}, nil
}

// The limits of pools.
const (
	maxURLLength   = 2000
	maxConcurrency = 1_000_000
	maxRate        = 100_000
	maxPoolTimeout = 10 * time.Minute
	maxPoolTenants = 1000
)

// poolName is the syntax of pool names in manifests.
var poolName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,99}$`)

// ValidatePoolName checks the name of a pool.
func ValidatePoolName(field, name string) error {
	if !poolName.MatchString(name) {
		return fault.Invalid(field, fmt.Sprintf("%.100q is not a valid pool name", name), "use 1 to 100 lower-case letters, digits, '_', '-' and '.', such as gpu")
	}
	return nil
}

// Validate checks the settings and reports all errors.
func (s PoolSettings) Validate() error {
	var found []fault.Violation
	refuse := func(field, message, remedy string) {
		found = append(found, fault.Violation{Code: fault.InvalidArgument, Field: field, Message: message, Remedy: remedy})
	}
	switch s.Kind {
	case Push:
		if message := badURL(s.URL); message != "" {
			refuse("url", message, "set the URL that receives tasks, such as https://workers.example.com/servo")
		}
	case Pull:
		for _, only := range []struct {
			field string
			set   bool
		}{{"url", s.URL != ""}, {"rate_per_second", s.RatePerSecond != 0}} {
			if only.set {
				refuse(only.field, "is set, but only push pools have it", "remove it, or use kind push")
			}
		}
	default:
		refuse("kind", fmt.Sprintf("unknown pool kind %.100q", s.Kind), "use pull (workers claim) or push (Servo calls a URL)")
	}
	if s.MaxConcurrency != NoLimit && (s.MaxConcurrency < 0 || s.MaxConcurrency > maxConcurrency) {
		refuse("max_concurrency", fmt.Sprintf("is %d, must be -1 to %d", s.MaxConcurrency, maxConcurrency), "use 0 to run nothing, or -1 for no limit")
	}
	if rate := float64(s.RatePerSecond); math.IsNaN(rate) || rate < 0 || rate > maxRate {
		refuse("rate_per_second", fmt.Sprintf("is %g, must be 0 to %d", rate, maxRate), "use 0 for no limit")
	}
	if limit := int32(maxPoolTimeout / time.Second); s.TimeoutSeconds < 1 || s.TimeoutSeconds > limit {
		refuse("timeout", fmt.Sprintf("is %ds, must be 1s to %ds", s.TimeoutSeconds, limit), "a task that takes longer responds with 202 and reports later")
	}
	switch {
	case len(s.Tenants) > maxPoolTenants:
		refuse("tenants", fmt.Sprintf("has %d tenants, the limit is %d", len(s.Tenants), maxPoolTenants), "share the pool with all tenants, or use several pools")
	case s.Owner != (id.Tenant{}) && len(s.Tenants) > 0:
		refuse("tenants", "is set, but a pool with an owner accepts only tasks of its owner", "remove the owner, or the list of tenants")
	}
	return fault.FromViolations(found)
}

// badURL describes what is wrong with the URL of a push pool; "" if it is valid.
func badURL(text string) string {
	if text == "" {
		return "is missing"
	}
	if len(text) > maxURLLength {
		return fmt.Sprintf("has %d bytes, the limit is %d", len(text), maxURLLength)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Sprintf("has the scheme %.20q, must be http or https", u.Scheme)
	case u.Hostname() == "":
		return "has no host"
	case u.User != nil:
		return "contains a user name or password, which all users of the pool could read"
	case u.Fragment != "":
		return "has a fragment, which is never sent"
	}
	return ""
}
