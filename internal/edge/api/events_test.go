package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func onEvent(name string) *servov1.ConfigSpec {
	return &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Event: &servov1.ConfigEvent{Name: name}}}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	send := func(t *testing.T, b *configBundle, req *servov1.SendEventRequest) (*servov1.SendEventResponse, error) {
		t.Helper()
		return servov1.NewEventServiceClient(b.conn).SendEvent(t.Context(), req)
	}
	prices := func() *servov1.SendEventRequest {
		return &servov1.SendEventRequest{Tenant: "acme", Name: "prices", DedupeKey: "k", Reason: "exported"}
	}

	t.Run("an event creates a run of each listening config, and lists them", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "listening", onEvent("prices"))
		b.create(t, "apart", onEvent("orders"))
		req := prices()
		req.Parameters = object(t, map[string]any{"day": "today"})
		answer, err := send(t, b, req)
		require.NoError(t, err)
		e := answer.GetEvent()
		require.Equal(t, "acme default prices k exported open PENDING", strings.Join([]string{
			e.GetTenant(), e.GetWorkspace(), e.GetName(), e.GetDedupeKey(), e.GetReason(), e.GetSentBy(), e.GetState().String(),
		}, " "))
		require.EqualValues(t, 1, e.GetListeners())
		require.Equal(t, noon, e.GetReceivedAt().AsTime())
		require.EqualValues(t, 1, b.at(t, noon.Add(time.Second)).GetRunsCreated())
		require.Zero(t, b.at(t, noon.Add(2*time.Second)).GetRunsCreated())

		events := servov1.NewEventServiceClient(b.conn)
		done, err := events.GetEvent(t.Context(), &servov1.GetEventRequest{Tenant: "acme", Event: e.GetId()})
		require.NoError(t, err)
		require.Equal(t, servov1.OutsideEvent_DONE, done.GetState())
		require.EqualValues(t, 1, done.GetRuns())
		require.Equal(t, noon.Add(time.Second), done.GetDoneAt().AsTime())

		again, err := send(t, b, req)
		require.NoError(t, err)
		require.True(t, again.GetDuplicate())
		require.True(t, proto.Equal(done, again.GetEvent()), again)
		req.Parameters = object(t, map[string]any{"day": "tomorrow"})
		_, err = send(t, b, req)
		p := requireRefused(t, err, codes.FailedPrecondition, "dedupe_key")
		require.Equal(t, "CONFLICT", p.GetCode())
		require.ErrorContains(t, err, "with other parameters")
	})

	t.Run("a mistake is reported with its field", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "listening", onEvent("prices"))
		for _, c := range []struct {
			field  string
			change func(*servov1.SendEventRequest)
		}{
			{"name", func(r *servov1.SendEventRequest) { r.Name = "" }},
			{"dedupe_key", func(r *servov1.SendEventRequest) { r.DedupeKey = "" }},
			{"dedupe_key", func(r *servov1.SendEventRequest) { r.DedupeKey = strings.Repeat("x", 201) }},
			{"parameters.zone", func(r *servov1.SendEventRequest) { r.Parameters = object(t, map[string]any{"zone": "x"}) }},
			{"reason", func(r *servov1.SendEventRequest) { r.Reason = strings.Repeat("x", 1001) }},
		} {
			req := prices()
			c.change(req)
			_, err := send(t, b, req)
			requireRefused(t, err, codes.InvalidArgument, c.field)
		}
		req := prices()
		req.Workspace = "staging"
		_, err := send(t, b, req)
		require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
	})

	t.Run("another tenant sees nothing of it", func(t *testing.T) {
		t.Parallel()
		b := setupConfigs(t)
		b.create(t, "listening", onEvent("prices"))
		mine, err := send(t, b, prices())
		require.NoError(t, err)
		foreign := prices()
		foreign.Tenant = "brick"
		theirs, err := send(t, b, foreign)
		require.NoError(t, err)
		require.False(t, theirs.GetDuplicate())
		require.Zero(t, theirs.GetEvent().GetListeners())
		events := servov1.NewEventServiceClient(b.conn)
		for _, of := range []string{mine.GetEvent().GetId(), uuid.NewString()} {
			_, err = events.GetEvent(t.Context(), &servov1.GetEventRequest{Tenant: "brick", Event: of})
			require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
		}
	})
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	templates := servov1.NewTemplateServiceClient(b.conn)
	set := func(name, cron string) (*servov1.SetTemplateResponse, error) {
		return templates.SetTemplate(t.Context(), &servov1.SetTemplateRequest{Tenant: "acme", Name: name, Cron: cron, Description: "early"})
	}
	made, err := set("early", "0 6 * * *")
	require.NoError(t, err)
	require.Zero(t, made.GetConfigsChanged())
	require.Equal(t, "0 6 * * * 1 open", made.GetTemplate().GetCron()+" "+"1 "+made.GetTemplate().GetChangedBy())
	spec := &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Template: "early", Expression: "what is sent is not read"}}
	require.Equal(t, "0 6 * * *", b.create(t, "used", spec).GetSpec().GetTrigger().GetExpression())
	changed, err := set("early", "0 5 * * *")
	require.NoError(t, err)
	require.EqualValues(t, 1, changed.GetConfigsChanged())
	require.Equal(t, noon.Truncate(24*time.Hour).Add(29*time.Hour), b.get(t, "used").GetNextSlot().AsTime())

	list, err := templates.ListTemplates(t.Context(), &servov1.ListTemplatesRequest{Tenant: "acme"})
	require.NoError(t, err)
	var own, builtIn int
	for _, one := range list.GetTemplates() {
		if one.GetBuiltIn() {
			builtIn++
		} else {
			own++
			require.Equal(t, "early", one.GetName())
		}
	}
	require.Equal(t, 1, own)
	require.Greater(t, builtIn, 3)

	_, err = set("hourly", "5 * * * *")
	require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	_, err = set("x", "0 0 30 2 *")
	requireRefused(t, err, codes.InvalidArgument, "cron")
	drop := &servov1.DeleteTemplateRequest{Tenant: "acme", Name: "early"}
	_, err = templates.DeleteTemplate(t.Context(), drop)
	require.ErrorContains(t, err, "1 configs use template early: used")
	_, err = b.configs.DeleteConfig(t.Context(), &servov1.DeleteConfigRequest{Tenant: "acme", Config: "used"})
	require.NoError(t, err)
	_, err = templates.DeleteTemplate(t.Context(), drop)
	require.NoError(t, err)
	_, err = templates.DeleteTemplate(t.Context(), drop)
	require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
}

func TestDeleteConfigThatOthersNeed(t *testing.T) {
	t.Parallel()
	b := setupConfigs(t)
	b.create(t, "source", hourly())
	next := &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Event: &servov1.ConfigEvent{Config: "source"}}}
	b.create(t, "next", next)
	_, err := b.configs.DeleteConfig(t.Context(), &servov1.DeleteConfigRequest{Tenant: "acme", Config: "source"})
	require.ErrorContains(t, err, "run after source or depend on it: next")
	_, err = b.configs.DeleteConfig(t.Context(), &servov1.DeleteConfigRequest{Tenant: "acme", Config: "source", Force: true})
	require.NoError(t, err)
	_, err = b.configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "third", Spec: next})
	requireRefused(t, err, codes.InvalidArgument, "spec.trigger.event.config")
}
