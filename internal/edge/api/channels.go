package api

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// channelService implements servo.v1.ReleaseChannelService.
type channelService struct{ *Server }

// Bounds of the details of a channel.
const (
	namedTenants   = 20
	namedFailures  = 20
	namedDecisions = 50
)

// CreateReleaseChannel implements servov1.ReleaseChannelServiceServer.
func (s channelService) CreateReleaseChannel(ctx context.Context, req *servov1.CreateReleaseChannelRequest) (*servov1.ReleaseChannel, error) {
	c, err := s.engine.CreateReleaseChannel(ctx, req.GetName(), req.GetRelease(), req.GetDefault(), intercept.Meta(ctx))
	return s.channel(ctx, c, err)
}

// ListReleaseChannels implements servov1.ReleaseChannelServiceServer.
func (s channelService) ListReleaseChannels(ctx context.Context, _ *servov1.ListReleaseChannelsRequest) (*servov1.ListReleaseChannelsResponse, error) {
	channels, err := s.store.ReleaseChannels(ctx)
	if err != nil {
		return nil, err
	}
	names, err := s.releaseNames(ctx, channels...)
	out := &servov1.ListReleaseChannelsResponse{}
	for _, c := range channels {
		out.Channels = append(out.Channels, releaseChannelToProto(c, names))
	}
	return out, err
}

// UpdateReleaseChannel implements servov1.ReleaseChannelServiceServer.
func (s channelService) UpdateReleaseChannel(ctx context.Context, req *servov1.UpdateReleaseChannelRequest) (*servov1.ReleaseChannel, error) {
	c, err := s.engine.SetDefaultChannel(ctx, req.GetChannel(), req.GetDefault(), intercept.Meta(ctx))
	return s.channel(ctx, c, err)
}

// DeleteReleaseChannel implements servov1.ReleaseChannelServiceServer.
func (s channelService) DeleteReleaseChannel(ctx context.Context, req *servov1.DeleteReleaseChannelRequest) (*servov1.DeleteReleaseChannelResponse, error) {
	return &servov1.DeleteReleaseChannelResponse{}, s.engine.DeleteReleaseChannel(ctx, req.GetChannel(), intercept.Meta(ctx))
}

// RollChannel implements servov1.ReleaseChannelServiceServer.
func (s channelService) RollChannel(ctx context.Context, req *servov1.RollChannelRequest) (*servov1.ReleaseChannel, error) {
	c, err := s.engine.Roll(ctx, engine.RollChannel{
		Channel: req.GetChannel(), Release: req.GetRelease(), Waves: hundredths(req.GetWaves()), Soak: req.GetSoak().AsDuration(), First: req.GetFirst(),
		AllowBroken: req.GetAllowBroken(), Meta: intercept.Meta(ctx),
	})
	return s.channel(ctx, c, err)
}

// PauseRollout implements servov1.ReleaseChannelServiceServer.
func (s channelService) PauseRollout(ctx context.Context, req *servov1.PauseRolloutRequest) (*servov1.ReleaseChannel, error) {
	c, err := s.engine.PauseRollout(ctx, changeRollout(ctx, req))
	return s.channel(ctx, c, err)
}

// ResumeRollout implements servov1.ReleaseChannelServiceServer.
func (s channelService) ResumeRollout(ctx context.Context, req *servov1.ResumeRolloutRequest) (*servov1.ReleaseChannel, error) {
	c, err := s.engine.ResumeRollout(ctx, changeRollout(ctx, req))
	return s.channel(ctx, c, err)
}

// AdvanceRollout implements servov1.ReleaseChannelServiceServer.
func (s channelService) AdvanceRollout(ctx context.Context, req *servov1.AdvanceRolloutRequest) (*servov1.ReleaseChannel, error) {
	c, err := s.engine.AdvanceRollout(ctx, changeRollout(ctx, req))
	return s.channel(ctx, c, err)
}

// RollBackChannel implements servov1.ReleaseChannelServiceServer.
func (s channelService) RollBackChannel(ctx context.Context, req *servov1.RollBackChannelRequest) (*servov1.ReleaseChannel, error) {
	c, err := s.engine.RollBack(ctx, changeRollout(ctx, req))
	return s.channel(ctx, c, err)
}

func changeRollout(ctx context.Context, req interface {
	GetChannel() string
	GetReason() string
},
) engine.ChangeRollout {
	return engine.ChangeRollout{Channel: req.GetChannel(), Reason: req.GetReason(), Meta: intercept.Meta(ctx)}
}

// FollowChannelByLabel implements servov1.ReleaseChannelServiceServer.
func (s channelService) FollowChannelByLabel(ctx context.Context, req *servov1.FollowChannelByLabelRequest) (*servov1.FollowChannelByLabelResponse, error) {
	followed, skipped, err := s.engine.FollowByLabel(ctx, req.GetChannel(), req.GetLabel(), intercept.Meta(ctx))
	return &servov1.FollowChannelByLabelResponse{Followed: int64(followed), Skipped: skipped}, err
}

// FollowChannel implements servov1.ReleaseChannelServiceServer.
func (s channelService) FollowChannel(ctx context.Context, req *servov1.FollowChannelRequest) (*servov1.FollowChannelResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	changed, err := s.engine.FollowChannel(ctx, engine.Follow{
		Tenant: tenant, Workspace: req.GetWorkspace(), Channel: req.GetChannel(), AllowBroken: req.GetAllowBroken(), Meta: intercept.Meta(ctx),
	})
	return &servov1.FollowChannelResponse{Changed: changed}, err
}

// SetTenantLabels implements servov1.ReleaseChannelServiceServer.
func (s channelService) SetTenantLabels(ctx context.Context, req *servov1.SetTenantLabelsRequest) (*servov1.SetTenantLabelsResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	return &servov1.SetTenantLabelsResponse{}, s.engine.SetTenantLabels(ctx, tenant, req.GetLabels(), intercept.Meta(ctx))
}

// GetReleaseChannel implements servov1.ReleaseChannelServiceServer.
func (s channelService) GetReleaseChannel(ctx context.Context, req *servov1.GetReleaseChannelRequest) (*servov1.GetReleaseChannelResponse, error) {
	channels, err := s.store.ReleaseChannels(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range channels {
		if c.Name == req.GetChannel() {
			return s.details(ctx, c)
		}
	}
	return nil, fault.New(fault.NotFound, "no channel "+req.GetChannel(), fault.Field("channel"), fault.Remedy("list the channels: servo channels list"))
}

func (s channelService) details(ctx context.Context, c store.ReleaseChannel) (*servov1.GetReleaseChannelResponse, error) {
	shown, err := s.channel(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := s.store.FollowingTenants(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	out := &servov1.GetReleaseChannelResponse{Channel: shown, Tenants: int64(len(tenants))}
	if out.Decisions, err = s.decisions(ctx, c.Name); err != nil || c.Rollout == nil {
		return out, err
	}
	out.Waves = wavesToProto(c, tenants)
	seen, err := s.store.RolloutEvidence(ctx, c.Rollout)
	if err != nil {
		return nil, err
	}
	out.NewRuns = &servov1.RunCounts{Ended: seen.New.Ended, Failed: seen.New.Failed}
	out.OldRuns = &servov1.RunCounts{Ended: seen.Old.Ended, Failed: seen.Old.Failed}
	failures, err := s.store.RolloutFailures(ctx, c.Rollout, namedFailures)
	for _, f := range failures {
		out.Failures = append(out.Failures, &servov1.RolloutFailure{Tenant: f.Tenant, Error: f.Error, Runs: f.Runs})
	}
	return out, err
}

// wavesToProto counts the tenants of each wave, and names some.
func wavesToProto(c store.ReleaseChannel, tenants []store.FollowingTenant) []*servov1.WaveTenants {
	out := make([]*servov1.WaveTenants, len(c.Rollout.Waves))
	for i, percent := range percents(c.Rollout.Waves) {
		out[i] = &servov1.WaveTenants{Wave: int32(i + 1), Percent: percent, Reached: i <= c.Rollout.Wave}
	}
	for _, t := range tenants {
		wave := c.Rollout.WaveOf(c.Name, t.ID, t.Labels)
		if wave < 0 {
			continue
		}
		w := out[wave]
		if w.Tenants++; len(w.Names) < namedTenants {
			w.Names = append(w.Names, t.Name)
		}
	}
	return out
}

// decisions returns the events of a channel in words, the newest first.
func (s channelService) decisions(ctx context.Context, channel string) ([]*servov1.ChannelDecision, error) {
	events, err := s.store.ChannelEvents(ctx, channel, namedDecisions)
	if err != nil {
		return nil, err
	}
	var ids []id.Release
	for _, e := range events {
		switch b := e.Body.(type) {
		case release.ChannelCreated:
			ids = append(ids, b.Release)
		case release.RolloutStarted:
			ids = append(ids, b.From, b.To)
		}
	}
	names, err := s.store.ReleasesByID(ctx, ids)
	out := make([]*servov1.ChannelDecision, len(events))
	for i, e := range events {
		out[i] = &servov1.ChannelDecision{At: timestamp(e.At), Type: string(e.Body.EventType()), Actor: e.Meta.Actor, Text: decisionText(e, names)}
	}
	return out, err
}

func decisionText(e platform.Event, names map[id.Release]store.Release) string {
	with := func(text, reason string, seen release.Evidence) string {
		if reason != "" {
			return text + ": " + reason
		}
		if seen.New.Ended > 0 {
			return text + ": " + seen.Describe()
		}
		return text
	}
	switch b := e.Body.(type) {
	case release.ChannelCreated:
		return "channel created at release " + nameOf(names, b.Release)
	case release.ChannelUpdated:
		if b.Default {
			return "new tenants follow the channel"
		}
		return "new tenants no longer follow the channel"
	case release.RolloutStarted:
		return fmt.Sprintf("rollout from %s to %s started at wave %d of %d", nameOf(names, b.From), nameOf(names, b.To), b.Wave+1, len(b.Waves))
	case release.WaveAdvanced:
		return with(fmt.Sprintf("wave %d started", b.Wave+1), b.Reason, b.Evidence)
	case release.RolloutPaused:
		return with("rollout paused", b.Reason, b.Evidence)
	case release.RolloutResumed:
		return with("rollout resumed", b.Reason, b.Evidence)
	case release.RolloutCompleted:
		return with("rollout completed", b.Reason, b.Evidence)
	case release.RolloutRolledBack:
		return with("rolled back", b.Reason, b.Evidence)
	}
	return eventName(e.Body)
}

func eventName(body event.Body) string { return string(body.EventType()) }

func nameOf(names map[id.Release]store.Release, of id.Release) string {
	switch r, known := names[of]; {
	case of == (id.Release{}):
		return "none"
	case known:
		return r.Name
	}
	return of.String()
}

// channel answers a call that has changed or read a channel.
func (s channelService) channel(ctx context.Context, c store.ReleaseChannel, err error) (*servov1.ReleaseChannel, error) {
	if err != nil {
		return nil, err
	}
	names, err := s.releaseNames(ctx, c)
	return releaseChannelToProto(c, names), err
}

func (s channelService) releaseNames(ctx context.Context, channels ...store.ReleaseChannel) (map[id.Release]store.Release, error) {
	var ids []id.Release
	for _, c := range channels {
		if ids = append(ids, c.Current); c.Rollout != nil {
			ids = append(ids, c.Rollout.From, c.Rollout.To)
		}
	}
	return s.store.ReleasesByID(ctx, ids)
}

func releaseChannelToProto(c store.ReleaseChannel, names map[id.Release]store.Release) *servov1.ReleaseChannel {
	out := &servov1.ReleaseChannel{Name: c.Name, Default: c.Default, CreatedAt: timestamp(c.CreatedAt), UpdatedAt: timestamp(c.UpdatedAt)}
	if c.Current != (id.Release{}) {
		out.Release = nameOf(names, c.Current)
	}
	if r := c.Rollout; r != nil {
		out.Rollout = &servov1.Rollout{
			Id: r.ID.String(), State: servov1.Rollout_State(servov1.Rollout_State_value[string(r.State)]), From: nameOf(names, r.From), To: nameOf(names, r.To),
			Waves: percents(r.Waves), Wave: int32(r.Wave + 1), First: r.First, Soak: durationpb.New(r.Soak), StartedAt: timestamp(r.StartedAt), //nolint:gosec // at most 20 waves
			WaveAt: timestamp(r.WaveAt), Reason: r.Reason, Automatic: r.Automatic, SkippedTenants: int32(len(r.Skipped)), //nolint:gosec // at most 1,000
		}
		if !r.EndedAt.IsZero() {
			out.Rollout.EndedAt = timestamp(r.EndedAt)
		}
	}
	return out
}
