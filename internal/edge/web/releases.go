package web

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// releasesOffered is how many releases the menus of a page offer, newest first.
const releasesOffered = 50

// releaseRoutes are the pages of releases and channels.
func (s *Web) releaseRoutes() {
	s.show("/releases", s.releases)
	s.show("/releases/{release}", s.release)
	s.show("/channels/{channel}", s.channel)
	s.act("/channels/{channel}/roll", s.rollChannel)
	s.act("/channels/{channel}/pause", s.pauseRollout)
	s.act("/channels/{channel}/resume", s.resumeRollout)
	s.act("/channels/{channel}/advance", s.advanceRollout)
	s.act("/channels/{channel}/rollback", s.rollBackChannel)
}

// releases lists channels and releases.
func (s *Web) releases(v *visit) (view.Page, error) {
	channels, err := s.api.channels.ListReleaseChannels(v.ctx, &servov1.ListReleaseChannelsRequest{})
	if err != nil {
		return view.Page{}, err
	}
	list, err := s.api.releases.ListReleases(v.ctx, &servov1.ListReleasesRequest{PageSize: rowsOfList, PageToken: v.token()})
	if err != nil {
		return view.Page{}, err
	}
	m := view.ReleasesModel{Channels: channels.GetChannels(), Releases: list.GetReleases(), Paging: v.paging(list.GetNextPageToken())}
	return view.Page{Title: "Releases", Section: "releases", Live: m.First, Body: view.Releases(m)}, nil
}

// channel is one channel with its last rollout.
func (s *Web) channel(v *visit) (view.Page, error) {
	status, err := s.api.channels.GetReleaseChannel(v.ctx, &servov1.GetReleaseChannelRequest{Channel: v.PathValue("channel")})
	if err != nil {
		return view.Page{}, err
	}
	list, err := s.api.releases.ListReleases(v.ctx, &servov1.ListReleasesRequest{PageSize: releasesOffered})
	if err != nil {
		return view.Page{}, err
	}
	m := view.ChannelModel{Status: status, Releases: list.GetReleases(), MayManage: v.may(access.ReleasesManage)}
	return view.Page{Title: "Channel " + status.GetChannel().GetName(), Section: "releases", Live: true, Body: view.Channel(m)}, nil
}

// release is one release, compared with another one, and its impact on the configs of a channel.
func (s *Web) release(v *visit) (view.Page, error) {
	found, err := s.api.releases.GetRelease(v.ctx, &servov1.GetReleaseRequest{Release: v.PathValue("release")})
	if err != nil {
		return view.Page{}, err
	}
	m := view.ReleaseModel{Release: found, With: v.query("with"), Channel: v.query("channel")}
	list, err := s.api.releases.ListReleases(v.ctx, &servov1.ListReleasesRequest{PageSize: releasesOffered})
	if err != nil {
		return view.Page{}, err
	}
	for _, r := range list.GetReleases() {
		if r.GetId() != found.GetId() {
			m.Others = append(m.Others, r)
			if m.With == "" && r.GetCreatedAt().AsTime().Before(found.GetCreatedAt().AsTime()) {
				m.With = r.GetName() // the release before it
			}
		}
	}
	channels, err := s.api.channels.ListReleaseChannels(v.ctx, &servov1.ListReleaseChannelsRequest{})
	if err != nil {
		return view.Page{}, err
	}
	m.Channels = channels.GetChannels()
	if m.Channel != "" {
		if m.Impact, err = s.api.releases.CheckRelease(v.ctx, &servov1.CheckReleaseRequest{Release: found.GetName(), Channel: m.Channel}); err != nil {
			return view.Page{}, err
		}
	}
	if m.With != "" {
		if err := s.compare(v, &m); err != nil {
			return view.Page{}, err
		}
	}
	return view.Page{Title: "Release " + found.GetName(), Section: "releases", Body: view.Release(m)}, nil
}

// compare adds the changes from another release to that of the page.
func (s *Web) compare(v *visit, m *view.ReleaseModel) error {
	diff, err := s.api.releases.DiffReleases(v.ctx, &servov1.DiffReleasesRequest{Release: m.With, To: m.Release.GetName()})
	if err != nil {
		return err
	}
	m.Changes = view.Changes{All: diff.GetChanges()}
	before, err := s.api.releases.GetRelease(v.ctx, &servov1.GetReleaseRequest{Release: m.With})
	if err != nil {
		return err
	}
	m.Changes.Describe(entries(before.GetManifest()), entries(m.Release.GetManifest()))
	return nil
}

// entries are the assets and pipelines of a manifest as text, by kind and name. A manifest that is too large
// for a message has none.
func entries(manifest *structpb.Struct) map[string]string {
	out := map[string]string{}
	add := func(kind, list, name string) {
		for _, value := range manifest.GetFields()[list].GetListValue().GetValues() {
			text, err := json.MarshalIndent(value.AsInterface(), "", "  ")
			if err == nil {
				out[kind+" "+value.GetStructValue().GetFields()[name].GetStringValue()] = string(text)
			}
		}
	}
	add("asset", "assets", "key")
	add("pipeline", "pipelines", "name")
	return out
}

func (s *Web) rollChannel(v *visit) (done, error) {
	waves, err := wavesOf(v.field("waves"))
	if err != nil {
		return done{}, err
	}
	req := &servov1.RollChannelRequest{
		Channel: v.PathValue("channel"), Release: v.field("release"), Waves: waves, First: v.field("first"), AllowBroken: v.field("allow_broken") != "",
	}
	if text := v.field("soak"); text != "" {
		soak, err := time.ParseDuration(text)
		if err != nil {
			return done{}, fault.Invalid("soak", fmt.Sprintf("%.50q is not a duration", text), "write one such as 15m")
		}
		req.Soak = durationpb.New(soak)
	}
	c, err := s.api.channels.RollChannel(v.ctx, req)
	notice := "Rollout started: wave " + strconv.Itoa(int(c.GetRollout().GetWave())) + " of " + strconv.Itoa(len(c.GetRollout().GetWaves())) + "."
	if c.GetRollout().GetState() == servov1.Rollout_COMPLETED {
		notice = "The channel uses release " + c.GetRelease() + "."
	}
	return changedChannel(v, err, notice)
}

// wavesOf reads percentages such as 1, 10, 100.
func wavesOf(text string) (waves []float64, err error) {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '%' }) {
		percent, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return nil, fault.Invalid("waves", fmt.Sprintf("%.50q is not a percentage", part), "write percentages such as 1, 10, 50, 100")
		}
		waves = append(waves, percent)
	}
	return waves, nil
}

// changedChannel is the result of an action on a channel.
func changedChannel(v *visit, err error, notice string) (done, error) {
	return done{To: view.ChannelPath(v.PathValue("channel")), Notice: notice}, err
}

func (s *Web) pauseRollout(v *visit) (done, error) {
	_, err := s.api.channels.PauseRollout(v.ctx, &servov1.PauseRolloutRequest{Channel: v.PathValue("channel"), Reason: v.field("reason")})
	return changedChannel(v, err, "Rollout paused. Tenants keep their release.")
}

func (s *Web) resumeRollout(v *visit) (done, error) {
	_, err := s.api.channels.ResumeRollout(v.ctx, &servov1.ResumeRolloutRequest{Channel: v.PathValue("channel"), Reason: v.field("reason")})
	return changedChannel(v, err, "Rollout resumed. The soak of its wave begins again.")
}

func (s *Web) advanceRollout(v *visit) (done, error) {
	c, err := s.api.channels.AdvanceRollout(v.ctx, &servov1.AdvanceRolloutRequest{Channel: v.PathValue("channel"), Reason: v.field("reason")})
	notice := "Wave " + strconv.Itoa(int(c.GetRollout().GetWave())) + " started."
	if c.GetRollout().GetState() == servov1.Rollout_COMPLETED {
		notice = "Rollout completed: all tenants use release " + c.GetRelease() + "."
	}
	return changedChannel(v, err, notice)
}

func (s *Web) rollBackChannel(v *visit) (done, error) {
	c, err := s.api.channels.RollBackChannel(v.ctx, &servov1.RollBackChannelRequest{Channel: v.PathValue("channel"), Reason: v.field("reason")})
	return changedChannel(v, err, "Rolled back to release "+c.GetRelease()+". Runs in flight keep "+c.GetRollout().GetTo()+".")
}
