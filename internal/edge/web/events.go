package web

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/view"
)

// eventRoutes are the pages of what was recorded.
func (s *Web) eventRoutes() {
	s.show("/events", s.events)
}

// events is the log, the newest first: of a tenant, or of all and of the installation.
func (s *Web) events(v *visit) (view.Page, error) {
	m := view.EventsModel{
		Scope: v.scope, Type: v.query("type"), Subject: v.query("subject"), Since: v.query("since"), Before: v.query("before"),
		First: v.token() == "", FirstAt: v.with("page", ""),
	}
	req := &servov1.ListEventsRequest{Tenant: v.scope.Tenant, Type: m.Type, Subject: m.Subject, PageSize: rowsOfList, PageToken: v.token()}
	if back, ok := sinceOf(m.Since); ok {
		req.From = timestamppb.New(v.now.Add(-back).Truncate(time.Minute)) // the same page again has the same token
	}
	if m.Before != "" {
		before, err := time.Parse(view.MinuteForm, m.Before)
		if err != nil {
			return view.Page{}, notRead("before", m.Before, "write it as "+view.MinuteForm)
		}
		req.To = timestamppb.New(before)
	}
	list, err := s.api.events.ListEvents(v.ctx, req)
	if err != nil {
		return view.Page{}, err
	}
	for _, e := range list.GetEvents() {
		m.Events = append(m.Events, view.EventRow{RecordedEvent: e, TypeAt: v.with("type", e.GetType()), SubjectAt: v.with("subject", e.GetSubject())})
	}
	m.NextAt = v.next(list.GetNextPageToken())
	// A filter is tried on thousands of events: once, and not every other second.
	live := m.First && m.Type == "" && m.Subject == "" && m.Before == ""
	return view.Page{Title: "Events", Section: "events", Live: live, Body: view.Events(m)}, nil
}
