package view

import (
	"cmp"
	"fmt"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// ReleasePath is the page of a release.
func ReleasePath(release string) string { return Path("releases", release) }

// ChannelPath is the page of a channel.
func ChannelPath(channel string) string { return Path("channels", channel) }

// ReleasesModel is the channels and releases of the installation.
type ReleasesModel struct {
	Paging

	Channels []*servov1.ReleaseChannel
	Releases []*servov1.Release
}

// ChannelModel is one channel with its last rollout.
type ChannelModel struct {
	Status    *servov1.GetReleaseChannelResponse
	Releases  []*servov1.Release // that it can be rolled to, newest first
	MayManage bool
}

// ReleaseModel is one release, compared with another one.
type ReleaseModel struct {
	Release  *servov1.Release
	Others   []*servov1.Release
	With     string // the release that it is compared with; "" is none
	Changes  Changes
	Channels []*servov1.ReleaseChannel
	Channel  string                        // whose configs are checked; "" is none
	Impact   *servov1.CheckReleaseResponse // nil before the check
}

// rollout is the last rollout of the channel; nil without one.
func (m ChannelModel) rollout() *servov1.Rollout { return m.Status.GetChannel().GetRollout() }

// active reports whether the channel is being rolled.
func (m ChannelModel) active() bool {
	return m.rollout().GetState() == servov1.Rollout_ROLLING || m.rollout().GetState() == servov1.Rollout_PAUSED
}

// actionAt is the address of an action on the channel.
func (m ChannelModel) actionAt(action string) string {
	return ChannelPath(m.Status.GetChannel().GetName()) + "/" + action
}

// targets are the releases to which the channel can be rolled.
func (m ChannelModel) targets() (options []Option) {
	for _, r := range m.Releases {
		if r.GetName() != m.Status.GetChannel().GetRelease() {
			options = append(options, Option{r.GetName(), r.GetName()})
		}
	}
	return options
}

// moved counts the tenants that use the new release.
func (m ChannelModel) moved() (n int64) {
	for _, w := range m.Status.GetWaves() {
		if w.GetReached() {
			n += w.GetTenants()
		}
	}
	return n
}

// last reports whether the current wave is the last one.
func (m ChannelModel) last() bool { return int(m.rollout().GetWave()) == len(m.rollout().GetWaves()) }

// waveState is the state of a wave for people.
func (m ChannelModel) waveState(w *servov1.WaveTenants) string {
	r := m.rollout()
	switch {
	case r.GetState() == servov1.Rollout_ROLLED_BACK && w.GetReached():
		return "RETURNED"
	case r.GetState() == servov1.Rollout_ROLLED_BACK:
		return "SKIPPED"
	case m.active() && w.GetWave() == r.GetWave():
		return "CURRENT"
	case w.GetReached():
		return "REACHED"
	}
	return "LATER"
}

// tenantNames are some tenants of a wave.
func tenantNames(w *servov1.WaveTenants) string {
	text := strings.Join(w.GetNames(), ", ")
	if more := w.GetTenants() - int64(len(w.GetNames())); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// percent is a share in per cent.
func percent(share float64) string { return fmt.Sprintf("%g %%", share) }

// failureRate is the share of failed runs in words.
func failureRate(c *servov1.RunCounts) string {
	if c.GetEnded() == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(c.GetFailed())/float64(c.GetEnded()))
}

// rateTone marks a new release that fails more often than the old one.
func rateTone(rates *servov1.GetReleaseChannelResponse) string {
	n, o := rates.GetNewRuns(), rates.GetOldRuns()
	if n.GetFailed() > 0 && n.GetFailed()*max(o.GetEnded(), 1) > o.GetFailed()*n.GetEnded() {
		return toneBad
	}
	return toneOK
}

// rolloutNote is the state of a rollout in a sentence, and its tone.
func rolloutNote(m ChannelModel) (tone, title, text string) {
	r := m.rollout()
	wave := fmt.Sprintf("wave %d of %d, %s of tenants", r.GetWave(), len(r.GetWaves()), percent(r.GetWaves()[r.GetWave()-1]))
	switch r.GetState() {
	case servov1.Rollout_ROLLING:
		return toneRun, "Rolling to " + r.GetTo(), fmt.Sprintf("It is at %s. The next step follows %s after the wave began, once 30 runs have ended on the new release.", wave, DurationOf(r.GetSoak()))
	case servov1.Rollout_PAUSED:
		return toneWait, "Paused at " + wave, sentence("", cmp.Or(r.GetReason(), "no reason was given"))
	case servov1.Rollout_ROLLED_BACK:
		by := "Rolled back by hand"
		if r.GetAutomatic() {
			by = "Rolled back automatically"
		}
		return toneBad, by + " from " + r.GetTo() + " to " + r.GetFrom(), sentence("", cmp.Or(r.GetReason(), "no reason was given"))
	case servov1.Rollout_COMPLETED, servov1.Rollout_STATE_UNSPECIFIED:
	}
	return toneOK, "Rollout to " + r.GetTo() + " completed", ""
}

// decisionState is the look of a decision in the timeline.
func decisionState(d *servov1.ChannelDecision) string {
	switch d.GetType() {
	case "channel.rollout_started", "channel.wave_advanced", "channel.rollout_resumed":
		return "ROLLING"
	case "channel.rollout_paused":
		return "PAUSED"
	case "channel.rollout_completed":
		return "COMPLETED"
	case "channel.rolled_back":
		return "ROLLED_BACK"
	}
	return "CHANGED"
}

// releaseOptions are releases to choose from.
func releaseOptions(first string, releases []*servov1.Release) []Option {
	options := []Option{{"", first}}
	for _, r := range releases {
		options = append(options, Option{r.GetName(), r.GetName()})
	}
	return options
}

// channelOptions are channels to choose from.
func channelOptions(channels []*servov1.ReleaseChannel) []Option {
	options := []Option{{"", "none"}}
	for _, c := range channels {
		options = append(options, Option{c.GetName(), c.GetName()})
	}
	return options
}

// Changes are the differences of two manifests.
type Changes struct {
	All   []*servov1.DeploymentChange
	Lines map[string][]Line // of changed entries, by kind and name
}

// maxDescribed bounds the changes that are shown line by line.
const maxDescribed = 100

// Describe adds the lines of changed entries; before and after have the text of each by kind and name.
func (c *Changes) Describe(before, after map[string]string) {
	c.Lines = map[string][]Line{}
	for _, change := range c.All[:min(len(c.All), maxDescribed)] {
		key := changeKey(change)
		if old, next := before[key], after[key]; old != next {
			c.Lines[key] = diffLines(old, next)
		}
	}
}

func changeKey(c *servov1.DeploymentChange) string { return c.GetKind() + " " + c.GetName() }
