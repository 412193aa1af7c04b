package storetest

import (
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func tenantCases() []testCase {
	return []testCase{
		{"apart", "two tenants can use the same ids independently", 0, tenantsApart},
		{"invisible", "for every operation, what belongs to another tenant does not exist", 0, tenantsInvisible},
		{"listing", "a listing shows the tenant's own sessions", 0, tenantsListing},
		{"cascade", "deleting a session deletes no other tenant's children", 0, tenantsCascade},
		{"streams", "two tenants' streams with one id are independent", 0, tenantsStreams},
		{"names", "tenant names are compared byte by byte", 0, tenantsNames},
		{"scopes", "a store derived from another tenant's store is scoped to the tenant named last", 0, tenantsScopes},
	}
}

// of returns the same case in another tenant, whose name no other case uses.
func (t *bed) of(tenant string) *bed {
	other := *t
	other.tenant = t.tenant + ":" + tenant
	return &other
}

func tenantsApart(t *bed) {
	north, south := t.of("north"), t.of("south")
	a, b := north.crowd("x"), south.crowd("x")
	before := south.snapshot("x")
	a.commit(session.Change{
		Messages: []session.Message{user("u9", "north's")}, Writes: put("k", `"north"`),
		Resolve: []session.Resolution{{CallID: "p1", State: session.PendingAbandoned}}, Consume: []string{"e1"},
		Outcome: &session.Outcome{Status: session.RunCompleted}, Status: session.Completed,
	})
	north.settle(a, call("m1", "c1", 0), `"north's"`)
	t.ok(session.PatchMetadata(t.Context(), north.store(), "x", map[string]*string{"k": new("north")}), "patch")
	south.sameSnapshot("x", before)
	equal(t, "tenant", south.load("x").Tenant, south.tenant)
	t.ok(north.delete("x"), "delete")
	south.sameSnapshot("x", before)
	b.commit(session.Change{})
	north.exists("x", false)
	t.exists("x", false)
}

func tenantsInvisible(t *bed) {
	north, south := t.of("north"), t.of("south")
	r := north.crowd("x")
	north.append("x", producer("x", r.fence.Epoch), 1, text("north's"))
	before, wakes := north.snapshot("x"), len(north.wakes(north.store()))
	south.gone("x")
	for name, write := range directWrites(south, "x") {
		t.refused(write(), session.ErrNotFound, name+" by another tenant")
	}
	for _, w := range everyWrite(south, r) {
		t.refused(w.do(), session.ErrNotFound, w.name+" by another tenant")
	}
	ctx, s, m := t.Context(), south.store(), south.streams()
	_, err := s.Clone(ctx, &session.Clone{From: "x", To: *blank("y")})
	t.refused(err, session.ErrNotFound, "Clone by another tenant")
	t.quiet(s.SettleClose(ctx, "x", r.run), "SettleClose")
	t.quiet(session.DropCalls(ctx, s, "x", "m1"), "DropCalls")
	t.quiet(s.Disown(ctx, "x", []string{"c1"}), "Disown")
	t.quiet(s.PutWake(ctx, session.Wake{Tenant: north.tenant, SessionID: "x", ChildID: "kid"}), "PutWake")
	t.refused(s.Ask(ctx, "x", r.fence, question("c1", 1)), session.ErrNotFound, "Ask")
	_, err = s.CleanCalls(ctx, noon.AddDate(100, 0, 0))
	t.ok(err, "CleanCalls")
	by := producer("x", r.fence.Epoch+1)
	for name, do := range map[string]func() error{
		"Append":         func() error { _, err := south.tryAppend("x", by, 1, text("south's")); return err },
		"Chunks":         func() error { _, err := m.Chunks(ctx, "x", 0, 10); return err },
		"ChunksFromStep": func() error { _, err := stream.ChunksFromStep(ctx, m, "x", "run-1", 0, 0, 10); return err },
		"End":            func() error { return m.End(ctx, "x", by, stream.End{Status: stream.EndCompleted}) },
		"Fail":           func() error { return m.Fail(ctx, "x", by, session.ErrInternal) },
		"Trim":           func() error { _, err := m.Trim(ctx, "x", stream.TrimPolicy{Through: 1}); return err },
		"Delete":         func() error { return m.Delete(ctx, "x") },
		"Read":           func() error { _, err, _ := t.read(m, "x", 0, false).next(); return err },
	} {
		t.refused(do(), session.ErrNotFound, name+" of another tenant's stream")
	}
	north.sameSnapshot("x", before)
	equal(t, "north's stream", north.deltas("x", 0), []string{"north's"})
	equal(t, "its status", north.info("x").Status, stream.StatusActive)
	equal(t, "north's wakes", len(north.wakes(north.store())), wakes)
}

func tenantsListing(t *bed) {
	north, south := t.of("north"), t.of("south")
	north.create("a")
	north.create("both")
	south.create("b")
	south.create("both")
	equal(t, "north's", len(north.listed(session.Query{})), 2)
	equal(t, "south's", len(south.listed(session.Query{})), 2)
	equal(t, "a third tenant's", len(t.listed(session.Query{})), 0)
	page, err := south.store().List(t.Context(), session.Query{PageRequest: session.PageRequest{Total: true}})
	t.ok(err, "List")
	equal(t, "total", *page.Total, 2)
	for _, item := range page.Items {
		equal(t, "tenant", item.Tenant, south.tenant)
	}
}

func tenantsCascade(t *bed) {
	kid := func(s *session.State) { s.ParentID, s.RootID = "root", "root" }
	for _, tenant := range []string{"north", "south"} {
		t.of(tenant).create("root")
		t.of(tenant).create("kid", kid)
	}
	t.ok(t.of("north").delete("root"), "delete")
	t.of("north").exists("kid", false)
	t.of("south").exists("root", true)
	t.of("south").exists("kid", true)
}

func tenantsStreams(t *bed) {
	north, south := t.of("north"), t.of("south")
	north.append("x", producer("x", 5), 1, text("north's"))
	_, err := south.streams().Info(t.Context(), "x")
	t.refused(err, session.ErrNotFound, "another tenant's stream")
	equal(t, "sequence", south.append("x", producer("x", 1), 1, text("south's")), 1)
	equal(t, "north's", north.deltas("x", 0), []string{"north's"})
	equal(t, "south's", south.deltas("x", 0), []string{"south's"})
	t.ok(north.streams().Delete(t.Context(), "x"), "delete")
	equal(t, "south's", south.deltas("x", 0), []string{"south's"})
}

func tenantsNames(t *bed) {
	names := []string{"a", "A", "a/b", "a:b", "ab"}
	for _, name := range names {
		t.of(name).create("b", custom(`{"tenant":"`+name+`"}`))
		t.of(name).create("b/c", custom(`{"tenant":"`+name+`"}`))
	}
	for _, name := range names {
		t.of(name).customIs("b", `{"tenant":"`+name+`"}`)
		equal(t, "sessions", len(t.of(name).listed(session.Query{})), 2)
	}
	t.ok(t.of("a").delete("b"), "delete")
	t.of("a").exists("b/c", true)
	t.of("a/b").exists("b", true)
	t.of("A").exists("b", true)
}

func tenantsScopes(t *bed) {
	t.of("north").create("x")
	view := t.Backend.Sessions().Tenant(t.of("south").tenant).Tenant(t.of("north").tenant)
	ok, err := view.Exists(t.Context(), "x")
	t.ok(err, "Exists")
	equal(t, "exists", ok, true)
	ok, err = t.Backend.Sessions().Tenant(t.of("north").tenant).Tenant(t.of("south").tenant).Exists(t.Context(), "x")
	t.ok(err, "Exists")
	equal(t, "exists in the other tenant", ok, false)
}
