package web

import (
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// adminRoutes are the pages of the installation.
func (s *Web) adminRoutes() {
	s.show("/admin", s.admin)
	s.act("/admin/dispatch/pause", s.pauseDispatch)
	s.act("/admin/dispatch/resume", s.resumeDispatch)
	s.act("/admin/verify", s.verifyProjections)
	s.act("/admin/keys", s.createKey)
	s.act("/admin/keys/{key}/rotate", s.rotateKey)
	s.act("/admin/keys/{key}/revoke", s.revokeKey)
	s.act("/admin/subscriptions/{subscription}/pause", s.pauseSubscription)
	s.act("/admin/subscriptions/{subscription}/resume", s.resumeSubscription)
}

// admin shows the installation: servers, dispatch, keys, subscriptions, projections and audit.
func (s *Web) admin(v *visit) (view.Page, error) {
	m := view.AdminModel{
		Tab: v.query("tab"), First: v.token() == "", MayDispatch: v.may(access.DispatchPause), MayVerify: v.may(access.Projections), MaySubscriptions: v.may(access.SubscriptionsManage),
	}
	if err := s.adminTab(v, &m); err != nil {
		return view.Page{}, err
	}
	return view.Page{Title: "Admin", Section: "admin", Live: m.First && m.Tab != "projections", Body: view.Admin(m)}, nil
}

// adminTab reads the data of the selected tab.
func (s *Web) adminTab(v *visit, m *view.AdminModel) (err error) {
	switch m.Tab {
	case "keys":
		m.Keys, err = s.keys(v, "", "/ui/admin/keys")
		return err
	case "signing":
		list, err := s.api.signingKeys.ListSigningKeys(v.ctx, &servov1.ListSigningKeysRequest{})
		m.SigningKeys = list.GetKeys()
		return err
	case "subscriptions":
		list, err := s.api.subscriptions.ListSubscriptions(v.ctx, &servov1.ListSubscriptionsRequest{})
		m.Subscriptions = list.GetSubscriptions()
		return err
	case "audit":
		m.Audit, err = s.auditOf(v, "")
		return err
	case "projections":
		return nil
	}
	m.Tab = ""
	if m.Status, err = s.api.status.GetStatus(v.ctx, &servov1.GetStatusRequest{}); err != nil {
		return err
	}
	m.Dispatch, err = s.api.admin.GetDispatch(v.ctx, &servov1.GetDispatchRequest{})
	return err
}

func (s *Web) pauseDispatch(v *visit) (done, error) {
	_, err := s.api.admin.PauseDispatch(v.ctx, &servov1.PauseDispatchRequest{Reason: v.field("reason")})
	return done{To: "/ui/admin", Notice: "Dispatch paused. Running tasks continue."}, err
}

func (s *Web) resumeDispatch(v *visit) (done, error) {
	_, err := s.api.admin.ResumeDispatch(v.ctx, &servov1.ResumeDispatchRequest{Reason: v.field("reason")})
	return done{To: "/ui/admin", Notice: "Dispatch resumed."}, err
}

// verifyProjections responds with the result, which has no address: it is valid at this moment.
func (s *Web) verifyProjections(v *visit) (done, error) {
	sample, err := number(v, "sample")
	if err != nil {
		return done{}, err
	}
	req := &servov1.VerifyProjectionsRequest{Tenant: v.field("tenant"), Sample: valueOf(sample)}
	found, err := s.api.admin.VerifyProjections(v.ctx, req)
	if err != nil {
		return done{}, err
	}
	m := view.AdminModel{Tab: "projections", MayVerify: true, Verified: found, VerifyTenant: req.GetTenant(), VerifySample: v.field("sample")}
	return done{Shown: &view.Page{Title: "Admin", Section: "admin", Body: view.Admin(m)}}, nil
}

func (s *Web) pauseSubscription(v *visit) (done, error) {
	changed, err := s.api.subscriptions.PauseSubscription(v.ctx, &servov1.PauseSubscriptionRequest{Subscription: v.PathValue("subscription"), Reason: v.field("reason")})
	return done{To: "/ui/admin?tab=subscriptions", Notice: "Subscription " + changed.GetName() + " paused."}, err
}

func (s *Web) resumeSubscription(v *visit) (done, error) {
	changed, err := s.api.subscriptions.ResumeSubscription(v.ctx, &servov1.ResumeSubscriptionRequest{Subscription: v.PathValue("subscription")})
	return done{To: "/ui/admin?tab=subscriptions", Notice: "Subscription " + changed.GetName() + " resumed."}, err
}
