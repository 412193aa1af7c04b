package sqlite

import "testing"

func TestNetworkDisk(t *testing.T) {
	t.Parallel()
	if kind := networkDisk("/proc"); kind != "" {
		t.Errorf("/proc is on a network disk of type %s", kind)
	}
	if kind := networkDisk("/no/such/place"); kind != "" {
		t.Errorf("a place that does not exist is on a network disk of type %s", kind)
	}
	const mounts = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:35 / /mnt/far\040away rw,nosuid - fuse.sshfs me@there:/ rw,user_id=0
41 22 0:36 / /mnt rw - tmpfs tmpfs rw
42 22 8:17 / /media/stick rw - fuseblk /dev/sdb1 rw
43 40 0:37 / /mnt/far\040away/over rw - ext4 /dev/x rw
44 40 0:38 / /mnt/far\040away/over rw - fuse.rclone remote: rw
not a line
`
	for path, want := range map[string]string{
		"/var/lib/helix/helix.db": "ext4", "/mnt/far away/helix.db": "fuse.sshfs", "/mnt/far away": "fuse.sshfs", "/mnt/farther": "tmpfs",
		"/media/stick/helix.db": "fuseblk", "/mnt/far away/over/x": "fuse.rclone",
	} {
		if got := mountedAt(mounts, path); got != want {
			t.Errorf("%s is on %q, want %q", path, got, want)
		}
	}
	if got := mountedAt("", "/x"); got != "" {
		t.Errorf("without mounts a path is on %q", got)
	}
}
