package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// provisionerName is what a StorageClass says in `provisioner` to get its volumes here.
	provisionerName = "karst.io/local"

	provisionedBy = "pv.kubernetes.io/provisioned-by"
	selectedNode  = "volume.kubernetes.io/selected-node"
)

// provisioner makes a directory of this machine for each claim of its storage classes, lets it grow
// when the claim grows, and removes it when the claim is gone.
//
// Volumes are of the kind `local`, not `hostPath`: the kubelet then honours `fsGroup`. The directory
// belongs to root with mode 0755, as a fresh disk of a cloud does: a pod that forgets `fsGroup` fails
// here as it would fail there. Sizes are bookkeeping; nothing limits what a pod writes.
type provisioner struct {
	root    string
	client  kubernetes.Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	queue   workqueue.TypedRateLimitingInterface[task]
}

// task names the one object to look at: a claim, or a volume when the namespace is empty.
type task struct{ namespace, name string }

func newProvisionerCommand() *cobra.Command {
	var kubeconfig, root string
	command := &cobra.Command{
		Use:   "volume-provisioner",
		Short: "Makes local directories for the claims of the class karst-local",
		RunE: func(*cobra.Command, []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("reading %s: %w", kubeconfig, err)
			}
			config.UserAgent = "karst-volume-provisioner"
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			return runProvisioner(genericapiserver.SetupSignalContext(), client, root)
		},
		SilenceUsage: true,
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&root, "root", "", "the directory under which volumes are made")
	return command
}

func runProvisioner(ctx context.Context, client kubernetes.Interface, root string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	p := &provisioner{
		root:    root,
		client:  client,
		claims:  factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: factory.Core().V1().PersistentVolumes().Lister(),
		classes: factory.Storage().V1().StorageClasses().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[task](100*time.Millisecond, 30*time.Second)),
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().PersistentVolumeClaims().Informer(),
		factory.Core().V1().PersistentVolumes().Informer(),
	} {
		if _, err := informer.AddEventHandler(p.enqueueEverything()); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	go func() {
		<-ctx.Done()
		p.queue.ShutDown()
	}()
	wait.UntilWithContext(ctx, p.work, time.Second)
	return nil
}

func (p *provisioner) enqueueEverything() cache.ResourceEventHandler {
	enqueue := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			namespace, name, _ := cache.SplitMetaNamespaceKey(key)
			p.queue.Add(task{namespace, name})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
	}
}

func (p *provisioner) work(ctx context.Context) {
	for {
		next, stopped := p.queue.Get()
		if stopped {
			return
		}
		if err := p.handle(ctx, next); err != nil {
			klog.ErrorS(err, "Will try again", "namespace", next.namespace, "name", next.name)
			p.queue.AddRateLimited(next)
		} else {
			p.queue.Forget(next)
		}
		p.queue.Done(next)
	}
}

func (p *provisioner) handle(ctx context.Context, next task) error {
	if next.namespace == "" {
		volume, err := p.volumes.Get(next.name)
		if err != nil {
			return ignoreNotFound(err)
		}
		return p.handleVolume(ctx, volume)
	}
	claim, err := p.claims.PersistentVolumeClaims(next.namespace).Get(next.name)
	if err != nil {
		return ignoreNotFound(err)
	}
	return p.handleClaim(ctx, claim)
}

func (p *provisioner) handleClaim(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	class, err := p.ourClass(claim)
	if class == nil || err != nil {
		return err
	}
	if claim.Spec.VolumeName != "" {
		return p.grow(ctx, claim)
	}
	node, scheduled := claim.Annotations[selectedNode]
	if !scheduled || claim.DeletionTimestamp != nil {
		return nil
	}
	return p.provision(ctx, claim, class, node)
}

func (p *provisioner) ourClass(claim *core.PersistentVolumeClaim) (*storage.StorageClass, error) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil, nil
	}
	class, err := p.classes.Get(*claim.Spec.StorageClassName)
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	if class.Provisioner != provisionerName {
		return nil, nil
	}
	return class, nil
}

func (p *provisioner) provision(ctx context.Context, claim *core.PersistentVolumeClaim, class *storage.StorageClass, node string) error {
	if claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == core.PersistentVolumeBlock {
		klog.InfoS("Block volumes are not made here", "claim", klog.KObj(claim))
		return nil
	}
	volume := newVolume(claim, class, node, p.root)
	path := volume.Spec.Local.Path
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	klog.InfoS("Made a volume", "claim", klog.KObj(claim), "path", path)
	return nil
}

func newVolume(claim *core.PersistentVolumeClaim, class *storage.StorageClass, node, root string) *core.PersistentVolume {
	// The claim's UID in the name makes the creation idempotent, and a claim that was deleted and
	// made again never finds the files of its predecessor.
	name := "pvc-" + string(claim.UID)
	reclaim := core.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{provisionedBy: provisionerName},
		},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: requestedSize(claim)},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: reclaim,
			StorageClassName:              class.Name,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource: core.PersistentVolumeSource{
				Local: &core.LocalVolumeSource{Path: filepath.Join(root, name)},
			},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{
				NodeSelectorTerms: []core.NodeSelectorTerm{{
					MatchExpressions: []core.NodeSelectorRequirement{{
						Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node},
					}},
				}},
			}},
		},
	}
}

// grow raises the volume's size, then the claim's, as a CSI driver and its sidecar would.
func (p *provisioner) grow(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	current, bound := claim.Status.Capacity[core.ResourceStorage]
	wanted := requestedSize(claim)
	if !bound || wanted.Cmp(current) <= 0 {
		return nil
	}
	volume, err := p.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return err
	}
	if size := volume.Spec.Capacity[core.ResourceStorage]; size.Cmp(wanted) < 0 {
		volume = volume.DeepCopy()
		volume.Spec.Capacity[core.ResourceStorage] = wanted
		if _, err := p.client.CoreV1().PersistentVolumes().Update(ctx, volume, meta.UpdateOptions{}); err != nil {
			return err
		}
	}
	claim = claim.DeepCopy()
	claim.Status.Capacity[core.ResourceStorage] = wanted
	claim.Status.Conditions = nil
	if _, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, meta.UpdateOptions{}); err != nil {
		return err
	}
	klog.InfoS("A volume has grown", "claim", klog.KObj(claim), "from", current.String(), "to", wanted.String())
	return nil
}

// handleVolume deletes what was released. A volume that is to be retained stays, with its files.
func (p *provisioner) handleVolume(ctx context.Context, volume *core.PersistentVolume) error {
	ours := volume.Annotations[provisionedBy] == provisionerName && volume.Spec.Local != nil
	released := volume.Status.Phase == core.VolumeReleased && volume.DeletionTimestamp == nil
	if !ours || !released || volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete {
		return nil
	}
	// The path is computed, not read from the object: nobody can make us delete another directory.
	path := filepath.Join(p.root, filepath.Base(volume.Name))
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if err := p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{}); err != nil {
		return ignoreNotFound(err)
	}
	klog.InfoS("Deleted a released volume", "volume", volume.Name, "path", path)
	return nil
}

func requestedSize(claim *core.PersistentVolumeClaim) resource.Quantity {
	return claim.Spec.Resources.Requests[core.ResourceStorage]
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
