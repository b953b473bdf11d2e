package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// Bucket is the place of a tenant among the tenants of a channel, from 0 to 9,999. It never changes, so the
// same tenants are in the first waves of every rollout of the channel.
func Bucket(channel string, tenant id.Tenant) int32 {
	sum := sha256.Sum256(append([]byte(channel+"/"), tenant.UUID[:]...))
	return int32(binary.BigEndian.Uint64(sum[:8]) % whole)
}

// WaveOf is the wave in which a tenant gets the new release; -1 if it is skipped.
func (r Rollout) WaveOf(channel string, tenant id.Tenant, labels map[string]string) int {
	if _, skipped := slices.BinarySearchFunc(r.Skipped, tenant, func(a, b id.Tenant) int { return bytes.Compare(a.UUID[:], b.UUID[:]) }); skipped {
		return -1
	}
	if r.First != "" {
		if key, value, err := ParseLabel("first", r.First); err == nil && labels[key] == value {
			return 0
		}
	}
	bucket := Bucket(channel, tenant)
	for wave, share := range r.Waves {
		if bucket < share {
			return wave
		}
	}
	return len(r.Waves) - 1
}

// For is the release that new runs of a tenant use; zero if the channel has none.
func (c Channel) For(channel string, tenant id.Tenant, labels map[string]string) id.Release {
	if r := c.Rollout; r != nil && r.State.Active() {
		if wave := r.WaveOf(channel, tenant, labels); wave >= 0 && wave <= r.Wave {
			return r.To
		}
		return r.From
	}
	return c.Current
}

// Releases are the releases that tenants of the channel may use now.
func (c Channel) Releases() []id.Release {
	switch {
	case c.State().Active() && c.Rollout.From != (id.Release{}):
		return []id.Release{c.Rollout.From, c.Rollout.To}
	case c.State().Active():
		return []id.Release{c.Rollout.To}
	case c.Current != (id.Release{}):
		return []id.Release{c.Current}
	}
	return nil
}

var (
	labelKey    = regexp.MustCompile(`^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$`)
	labelValue  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,98}[A-Za-z0-9])?$`)
	channelName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	releaseName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.+-]{0,98}[A-Za-z0-9])?$`)
)

// MaxLabels bounds the labels of a tenant.
const MaxLabels = 20

// ParseLabel splits a label such as tier=internal.
func ParseLabel(field, text string) (key, value string, err error) {
	key, value, found := strings.Cut(text, "=")
	if !found || !labelKey.MatchString(key) || !labelValue.MatchString(value) {
		return "", "", fault.Invalid(field, fmt.Sprintf("%.100q is not a label", text), "write key=value, such as tier=internal")
	}
	return key, value, nil
}

// ValidateLabels checks the labels of a tenant.
func ValidateLabels(field string, labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fault.Invalid(field, fmt.Sprintf("has %d labels, the limit is %d", len(labels), MaxLabels), "use fewer labels")
	}
	for key, value := range labels {
		if _, _, err := ParseLabel(field, key+"="+value); err != nil {
			return err
		}
	}
	return nil
}

// ValidateChannelName checks the name of a channel.
func ValidateChannelName(field, name string) error {
	if !channelName.MatchString(name) {
		return fault.Invalid(field, fmt.Sprintf("%.100q is not a valid name", name), "use 1 to 63 lower-case letters, digits and inner hyphens, such as stable")
	}
	return nil
}

// ValidateName checks the name of a release.
func ValidateName(field, name string) error {
	if !releaseName.MatchString(name) {
		return fault.Invalid(field, fmt.Sprintf("%.100q is not a valid name", name), "use 1 to 100 letters, digits, dots, hyphens, underscores and plus signs, such as 2026.11.1")
	}
	return nil
}
